//! Drops packets from the networks of a file, one a line. A changed file costs what changed.
//!
//! Run it as root: `cargo run -p nft-netlink --example blocklist FILE`.

use std::error::Error;

use ipnet::Ipv4Net;
use nft_netlink::expression::{Cmp, Immediate, Lookup, Reg, ip, meta};
use nft_netlink::kernel::Nftables;
use nft_netlink::{
    AnyElement, AnySet, BaseChain, Chain, Expression, HookPoint, SetContents, TableFamily,
    UnknownType, Verdict, WholeTable,
};

/// Name of the set of networks.
pub(crate) const SET: &str = "blocked";

/// Returns the table that drops packets from these networks, before their connections are tracked.
pub(crate) fn table(networks: &[Ipv4Net]) -> Result<WholeTable, UnknownType> {
    const BEFORE_CONNTRACK: i32 = -300;
    let mut table = WholeTable::new(TableFamily::Inet, "blocklist");
    let base = BaseChain::new("filter", HookPoint::Prerouting, BEFORE_CONNTRACK);
    table.chains.push(Chain::at_hook("prerouting", base));
    table.append_rule("prerouting", drop_blocked());
    // Networks that overlap or touch become one.
    let elements = Ipv4Net::aggregate(&networks.to_vec())
        .iter()
        .flat_map(|network| {
            let (first, last) = (network.network().octets(), network.broadcast().octets());
            AnyElement::range(first, &last)
        })
        .collect();
    let set = AnySet::of_types(SET, "ipv4_addr")?;
    let set = AnySet { flags: AnySet::INTERVAL, ..set };
    table.sets.push(SetContents { set, elements });
    Ok(table)
}

/// `ip saddr @blocked drop`
fn drop_blocked() -> Vec<Expression> {
    const FIRST: Reg = Reg::of_word(0);
    /// `NFPROTO_IPV4`.
    const IPV4: u8 = 2;
    vec![
        meta::nfproto(FIRST),
        Cmp::equal(FIRST, [IPV4]),
        ip::saddr(FIRST),
        Lookup::in_set(SET, FIRST),
        Immediate::verdict(Verdict::Drop),
    ]
}

#[expect(clippy::print_stdout, reason = "a program of the command line")]
fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: blocklist FILE")?;
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let networks = lines.map(str::parse).collect::<Result<Vec<Ipv4Net>, _>>()?;
    match Nftables::open()?.update(&table(&networks)?)? {
        Some(difference) => println!("{} messages", difference.len()),
        None => println!("nothing to do"),
    }
    Ok(())
}
