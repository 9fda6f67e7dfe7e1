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
use nft_netlink::expression::{Bitwise, Cmp, Data, Fib, Immediate, Masq, Meta, Nat, Payload, Reg};
use nft_netlink::kernel::Nftables;
use nft_netlink::{AnyChain, BaseChain, Expression, TableFamily, Verdict, WholeTable};

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
        ("forward", "filter", 2, 0),
        ("prerouting", "nat", 0, -100),
        ("output", "nat", 3, -100),
        ("postrouting", "nat", 4, 100),
    ] {
        let kind = kind.to_owned();
        let base = BaseChain { kind, hook, priority, ..BaseChain::default() };
        add_chain(&mut table, name.to_owned(), Some(base));
    }
    add_chain(&mut table, DNAT.to_owned(), None);
    add_chain(&mut table, SET_MARK.to_owned(), None);
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
    add_chain(table, outgoing.clone(), None);
    table.append_rule("forward", [in_network(DESTINATION, *subnet), vec![accept()]].concat());
    table.append_rule("forward", [in_network(SOURCE, *subnet), vec![accept()]].concat());
    table.append_rule("postrouting", [in_network(SOURCE, *subnet), vec![jump(&outgoing)]].concat());
    table.append_rule(&outgoing, [in_network(DESTINATION, *subnet), vec![accept()]].concat());
    table.append_rule(&outgoing, vec![masquerade()]);
    if !mappings.is_empty() {
        add_chain(table, dnat.clone(), None);
    }
    let this_host = Ipv4Net::from(Ipv4Addr::LOCALHOST);
    for mapping in mappings {
        table.append_rule(DNAT, [to_port(mapping), vec![jump(&dnat)]].concat());
        for clients in [*subnet, this_host] {
            let from = in_network(SOURCE, clients);
            table.append_rule(&dnat, [from, to_port(mapping), vec![jump(SET_MARK)]].concat());
        }
        table.append_rule(&dnat, [to_port(mapping), translate(mapping)].concat());
    }
}

fn add_chain(table: &mut WholeTable, name: String, base: Option<BaseChain>) {
    table.chains.push(AnyChain { name, base, ..AnyChain::default() });
}

const FIRST: Reg = Reg(1);
const SECOND: Reg = Reg(2);
/// Offsets in the IPv4 header.
const SOURCE: u32 = 12;
const DESTINATION: u32 = 16;

// `NFPROTO_IPV4`, `NFT_META_*`, `NFT_PAYLOAD_*`, and others of `<linux/netfilter/nf_tables.h>`.
const IPV4: u8 = 2;
const META_MARK: u32 = 3;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

fn load_meta(key: u32) -> Expression {
    Meta { key, to: Some(FIRST), from: None }.into()
}

fn equals(value: impl Into<Vec<u8>>) -> Expression {
    Cmp { from: FIRST, operation: 0, value: Data::Value(value.into()) }.into()
}

fn load_payload(base: u32, offset: u32, length: u32) -> Expression {
    let (from, to, none) = (None, Some(FIRST), None);
    let (checksum_type, checksum_offset, checksum_flags) = (none, none, none);
    Payload { from, to, base, offset, length, checksum_type, checksum_offset, checksum_flags }
        .into()
}

fn bits(mask: impl Into<Vec<u8>>, xor: impl Into<Vec<u8>>) -> Expression {
    let [mask, xor] = [mask.into(), xor.into()].map(|bytes| Some(Data::Value(bytes)));
    let (from, to, data, second) = (FIRST, FIRST, None, None);
    Bitwise { from, to, length: 4, operation: Some(0), mask, xor, data, second }.into()
}

fn load_value(value: impl Into<Vec<u8>>, to: Reg) -> Expression {
    Immediate { to, data: Data::Value(value.into()) }.into()
}

fn verdict(verdict: Verdict) -> Expression {
    Immediate { to: Reg(0), data: Data::Verdict(verdict) }.into()
}

fn accept() -> Expression {
    verdict(Verdict::Accept)
}

fn jump(chain: &str) -> Expression {
    verdict(Verdict::Jump(chain.to_owned().into()))
}

fn masquerade() -> Expression {
    Masq { flags: None, port: None, last_port: None }.into()
}

/// `fib daddr type local`
fn is_local() -> Vec<Expression> {
    const DESTINATION: u32 = 2;
    const ADDRESS_TYPE: u32 = 3;
    const LOCAL: u32 = 2;
    let fib = Fib { to: FIRST, result: ADDRESS_TYPE, flags: DESTINATION };
    vec![fib.into(), equals(LOCAL.to_ne_bytes())]
}

/// `ip saddr NETWORK`, `ip daddr NETWORK`
fn in_network(offset: u32, network: Ipv4Net) -> Vec<Expression> {
    let mut expressions = vec![load_meta(META_NFPROTO), equals([IPV4])];
    expressions.push(load_payload(NETWORK_HEADER, offset, 4));
    if network.prefix_len() < 32 {
        expressions.push(bits(network.netmask().octets(), [0; 4]));
    }
    expressions.push(equals(network.network().octets()));
    expressions
}

/// `meta l4proto PROTOCOL th dport PORT`
fn to_port(mapping: &Mapping) -> Vec<Expression> {
    const DESTINATION: u32 = 2;
    vec![
        load_meta(META_L4PROTO),
        equals([mapping.protocol]),
        load_payload(TRANSPORT_HEADER, DESTINATION, 2),
        equals(mapping.host_port.to_be_bytes()),
    ]
}

/// `dnat ip to ADDRESS:PORT`
fn translate(mapping: &Mapping) -> Vec<Expression> {
    const DNAT: u32 = 1;
    const ADDRESS_AND_PORT: u32 = 3;
    let nat = Nat {
        kind: DNAT,
        family: IPV4.into(),
        address: Some(FIRST),
        last_address: Some(FIRST),
        port: Some(SECOND),
        last_port: Some(SECOND),
        flags: Some(ADDRESS_AND_PORT),
    };
    vec![
        load_value(mapping.address.octets(), FIRST),
        load_value(mapping.port.to_be_bytes(), SECOND),
        nat.into(),
    ]
}

/// `meta mark set meta mark | MARK`
fn set_mark() -> Vec<Expression> {
    let set = Meta { key: META_MARK, to: None, from: Some(FIRST) };
    vec![load_meta(META_MARK), bits((!MARK).to_ne_bytes(), MARK.to_ne_bytes()), set.into()]
}

/// `meta mark & MARK == MARK`
fn is_marked() -> Vec<Expression> {
    let mark = MARK.to_ne_bytes();
    vec![load_meta(META_MARK), bits(mark, [0; 4]), equals(mark)]
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
