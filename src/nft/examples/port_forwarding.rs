//! The table of a container engine, kept up to date by differences: ports of the host lead to
//! containers, and containers reach the outside with the host's address.
//!
//! Each run makes the table what its arguments say, in one transaction, and prints what it sent. So
//! a container that comes or goes costs a few messages, and packets always meet a whole table.
//!
//! Run it as root: `cargo run -p nft-netlink --example port_forwarding 10.88.0.0/16
//! 8080:10.88.0.5:80/tcp`.

use std::error::Error;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use nft_netlink::expression::{Bitwise, Cmp, Immediate, Masq, Nat, Reg, fib, ip, meta, th};
use nft_netlink::kernel::Nftables;
use nft_netlink::{BaseChain, Chain, Expression, HookPoint, TableFamily, Verdict, WholeTable, key};

/// A network of containers.
pub(crate) struct Network {
    /// Its name, part of the names of chains.
    pub(crate) name: String,
    /// The addresses of its containers.
    pub(crate) subnet: Ipv4Net,
    /// Ports of the host that lead to its containers.
    pub(crate) mappings: Vec<Mapping>,
}

/// A port of the host that leads to a container.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    /// IP protocol.
    pub(crate) protocol: u8,
    /// Port of the host.
    pub(crate) host_port: u16,
    /// Address of the container.
    pub(crate) address: Ipv4Addr,
    /// Port of the container.
    pub(crate) port: u16,
}

const DNAT: &str = "hostport-dnat";
const SET_MARK: &str = "hostport-setmark";
/// The mark of packets that are masqueraded because they come from this host or their own network.
const MARK: u32 = 0x2000;

/// Returns the table for these networks.
pub(crate) fn table(networks: &[Network]) -> WholeTable {
    let mut table = WholeTable::new(TableFamily::Inet, "containers");
    for (name, kind, hook, priority) in [
        ("forward", "filter", HookPoint::Forward, 0),
        ("prerouting", "nat", HookPoint::Prerouting, -100),
        ("output", "nat", HookPoint::Output, -100),
        ("postrouting", "nat", HookPoint::Postrouting, 100),
    ] {
        table.chains.push(Chain::at_hook(name, BaseChain::new(kind, hook, priority)));
    }
    table.chains.push(Chain::new(DNAT));
    table.chains.push(Chain::new(SET_MARK));
    for chain in ["prerouting", "output"] {
        table.append_rule(chain, [is_local(), vec![jump(DNAT)]].concat());
    }
    table.append_rule(SET_MARK, set_mark());
    table.append_rule("postrouting", [is_marked(), vec![masquerade()]].concat());
    networks.iter().for_each(|network| add_network(&mut table, network));
    table
}

fn add_network(table: &mut WholeTable, network: &Network) {
    let Network { name, subnet, mappings } = network;
    let (outgoing, dnat) = (format!("net-{name}"), format!("net-{name}-dnat"));
    table.chains.push(Chain::new(outgoing.clone()));
    table.append_rule("forward", [in_network(ip::daddr(FIRST), *subnet), vec![accept()]].concat());
    table.append_rule("forward", [in_network(ip::saddr(FIRST), *subnet), vec![accept()]].concat());
    table.append_rule(
        "postrouting",
        [in_network(ip::saddr(FIRST), *subnet), vec![jump(&outgoing)]].concat(),
    );
    table.append_rule(&outgoing, [in_network(ip::daddr(FIRST), *subnet), vec![accept()]].concat());
    table.append_rule(&outgoing, vec![masquerade()]);
    if !mappings.is_empty() {
        table.chains.push(Chain::new(dnat.clone()));
    }
    let this_host = Ipv4Net::from(Ipv4Addr::LOCALHOST);
    for mapping in mappings {
        table.append_rule(DNAT, [to_port(mapping), vec![jump(&dnat)]].concat());
        for clients in [*subnet, this_host] {
            let from = in_network(ip::saddr(FIRST), clients);
            table.append_rule(&dnat, [from, to_port(mapping), vec![jump(SET_MARK)]].concat());
        }
        table.append_rule(&dnat, [to_port(mapping), translate(mapping)].concat());
    }
}

const FIRST: Reg = Reg::of_word(0);
const SECOND: Reg = Reg::of_word(4);
/// `NFPROTO_IPV4`.
const IPV4: u8 = 2;

fn accept() -> Expression {
    Immediate::verdict(Verdict::Accept)
}

fn jump(chain: &str) -> Expression {
    Immediate::verdict(Verdict::Jump(chain.to_owned().into()))
}

fn masquerade() -> Expression {
    Masq { flags: None, port: None, last_port: None }.into()
}

/// `fib daddr type local`
fn is_local() -> Vec<Expression> {
    let is_local = Cmp::equal(FIRST, key::ROUTE_LOCAL.to_ne_bytes());
    vec![fib::daddr_type(FIRST), is_local]
}

/// `ip saddr NETWORK`, `ip daddr NETWORK`
fn in_network(address: Expression, network: Ipv4Net) -> Vec<Expression> {
    let mut expressions = vec![meta::nfproto(FIRST), Cmp::equal(FIRST, [IPV4])];
    expressions.push(address);
    if network.prefix_len() < 32 {
        expressions.push(Bitwise::mask_xor(FIRST, network.netmask().octets(), [0; 4]));
    }
    expressions.push(Cmp::equal(FIRST, network.network().octets()));
    expressions
}

/// `meta l4proto PROTOCOL th dport PORT`
fn to_port(mapping: &Mapping) -> Vec<Expression> {
    vec![
        meta::l4proto(FIRST),
        Cmp::equal(FIRST, [mapping.protocol]),
        th::dport(FIRST),
        Cmp::equal(FIRST, mapping.host_port.to_be_bytes()),
    ]
}

/// `dnat ip to ADDRESS:PORT`
fn translate(mapping: &Mapping) -> Vec<Expression> {
    vec![
        Immediate::value(mapping.address.octets(), FIRST),
        Immediate::value(mapping.port.to_be_bytes(), SECOND),
        Nat::destination(IPV4, FIRST, SECOND),
    ]
}

/// `meta mark set meta mark | MARK`
fn set_mark() -> Vec<Expression> {
    vec![
        meta::mark(FIRST),
        Bitwise::mask_xor(FIRST, (!MARK).to_ne_bytes(), MARK.to_ne_bytes()),
        meta::set_mark(FIRST),
    ]
}

/// `meta mark & MARK == MARK`
fn is_marked() -> Vec<Expression> {
    let mark = MARK.to_ne_bytes();
    vec![meta::mark(FIRST), Bitwise::mask_xor(FIRST, mark, [0; 4]), Cmp::equal(FIRST, mark)]
}

/// Reads `HOST_PORT:ADDRESS:PORT/PROTOCOL`.
fn mapping(text: &str) -> Option<Mapping> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let (rest, protocol) = text.split_once('/')?;
    let protocol = match protocol {
        "tcp" => TCP,
        "udp" => UDP,
        _ => return None,
    };
    let (host_port, rest) = rest.split_once(':')?;
    let (address, port) = rest.split_once(':')?;
    let (host_port, port) = (host_port.parse().ok()?, port.parse().ok()?);
    Some(Mapping { protocol, host_port, address: address.parse().ok()?, port })
}

#[expect(clippy::print_stdout, reason = "a program of the command line")]
fn main() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: port_forwarding SUBNET [HOST_PORT:ADDRESS:PORT/PROTOCOL]...";
    let mut arguments = std::env::args().skip(1);
    let subnet = arguments.next().ok_or(USAGE)?.parse()?;
    let mappings = arguments.map(|text| mapping(&text)).collect::<Option<_>>().ok_or(USAGE)?;
    let network = Network { name: "default".to_owned(), subnet, mappings };
    match Nftables::open()?.update(&table(&[network]))? {
        Some(difference) => print!("{difference}"),
        None => println!("nothing to do"),
    }
    Ok(())
}
