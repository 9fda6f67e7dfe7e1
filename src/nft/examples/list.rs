//! Lists sets, chains and rules of all tables like `nft --numeric-priority list ruleset`, without
//! flags and comments of sets, and with elements on one line.
//!
//! Run it as root: `cargo run -p nft-netlink --example list`.

use std::error::Error;
use std::io::{self, Write};

use nft_netlink::kernel::Nftables;
use nft_netlink::{AnyChain, RuleContext};

/// Families: keyword of nft(8), `NFPROTO_*`.
const FAMILIES: [(&str, u8); 6] =
    [("ip", 2), ("ip6", 10), ("inet", 1), ("arp", 3), ("bridge", 7), ("netdev", 5)];

fn main() -> Result<(), Box<dyn Error>> {
    let mut kernel = Nftables::open()?;
    let mut out = io::stdout().lock();
    for (word, family) in FAMILIES {
        let chains = kernel.any_chains(family)?;
        for table in kernel.any_tables(family)? {
            writeln!(out, "table {word} {table} {{")?;
            let chains: Vec<_> = chains.iter().filter(|chain| chain.table == table).collect();
            list_table(&mut out, &mut kernel, (family, &table), &chains)?;
            writeln!(out, "}}")?;
        }
    }
    Ok(())
}

fn list_table(
    out: &mut impl Write,
    kernel: &mut Nftables,
    (family, table): (u8, &str),
    chains: &[&AnyChain],
) -> Result<(), Box<dyn Error>> {
    let sets = kernel.set_contents(family, table, |_| true)?;
    let rules = kernel.listed_rules(family, table)?;
    let context = RuleContext { family, sets: &sets, interfaces: &interface_name };
    for contents in sets.iter().filter(|contents| !contents.set.is_anonymous()) {
        let kind = if contents.set.is_map() { "map" } else { "set" };
        writeln!(out, "\t{kind} {} {{", contents.set.name)?;
        writeln!(out, "\t\ttype {}", contents.set.types())?;
        if !contents.elements.is_empty() {
            writeln!(out, "\t\telements = {}", context.elements(contents))?;
        }
        writeln!(out, "\t}}")?;
    }
    for chain in chains {
        writeln!(out, "\tchain {} {{", chain.name)?;
        if let Some(base) = &chain.base {
            let policy = if base.drops { "drop" } else { "accept" };
            let (kind, hook) = (&base.kind, hook_name(family, base.hook));
            writeln!(
                out,
                "\t\ttype {kind} hook {hook} priority {}; policy {policy};",
                base.priority
            )?;
        }
        for rule in rules.iter().filter(|rule| rule.chain == chain.name) {
            let text = context.text(&rule.expressions);
            match rule.comment() {
                Some(comment) => writeln!(out, "\t\t{text} comment \"{comment}\"")?,
                None => writeln!(out, "\t\t{text}")?,
            }
        }
        writeln!(out, "\t}}")?;
    }
    Ok(())
}

fn interface_name(index: u32) -> Option<String> {
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
}

fn hook_name(family: u8, hook: u32) -> &'static str {
    const ARP: u8 = 3;
    const NETDEV: u8 = 5;
    match (family, hook) {
        (ARP, 0) => "input",
        (ARP, 1) => "output",
        (NETDEV, 0) => "ingress",
        (NETDEV, 1) => "egress",
        (_, 0) => "prerouting",
        (_, 1) => "input",
        (_, 2) => "forward",
        (_, 3) => "output",
        (_, 4) => "postrouting",
        _ => "ingress",
    }
}
