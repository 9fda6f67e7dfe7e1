//! Lists sets, chains and rules of all tables like `nft --numeric-priority list ruleset`, without
//! comments of sets and states of objects, and with elements on one line.
//!
//! Run it as root: `cargo run -p nft-netlink --example list`.

use std::error::Error;
use std::io::{self, Write};

use nft_netlink::kernel::{Extent, Nftables};
use nft_netlink::{Chain, RuleContext, TableFamily, WholeTable};

fn main() -> Result<(), Box<dyn Error>> {
    let mut kernel = Nftables::open()?;
    let mut out = io::stdout().lock();
    for family in TableFamily::ALL {
        for header in kernel.tables(family)? {
            // Another program may delete the table meanwhile.
            if let Some(table) = kernel.whole_table(family, &header.name, Extent::Whole)? {
                list(&mut out, &table)?;
            }
        }
    }
    Ok(())
}

fn list(out: &mut impl Write, table: &WholeTable) -> io::Result<()> {
    writeln!(out, "table {} {} {{", table.family, table.name)?;
    let context =
        RuleContext { family: table.family, sets: &table.sets, interfaces: &interface_name };
    for object in &table.objects {
        writeln!(out, "\t{} {} {{", object.noun(), object.name)?;
        writeln!(out, "\t\t{}", context.text(std::slice::from_ref(&object.state)))?;
        writeln!(out, "\t}}")?;
    }
    for contents in table.sets.iter().filter(|contents| !contents.set.is_anonymous()) {
        writeln!(out, "\t{} {} {{", contents.set.noun(), contents.set.name)?;
        writeln!(out, "\t\ttype {}", contents.set.types())?;
        if !contents.elements.is_empty() {
            writeln!(out, "\t\telements = {}", context.elements(contents))?;
        }
        writeln!(out, "\t}}")?;
    }
    for flowtable in &table.flowtables {
        writeln!(out, "\tflowtable {flowtable}")?;
    }
    for chain in &table.chains {
        list_chain(out, table, chain, &context)?;
    }
    writeln!(out, "}}")
}

fn list_chain(
    out: &mut impl Write,
    table: &WholeTable,
    chain: &Chain,
    context: &RuleContext<'_>,
) -> io::Result<()> {
    writeln!(out, "\tchain {} {{", chain.name)?;
    if let Some(base) = &chain.base {
        let policy = if base.drops { "drop" } else { "accept" };
        let (kind, hook, priority) = (&base.kind, table.family.hook(base.hook), base.priority);
        let devices: Vec<_> =
            base.devices.iter().map(|device| format!("device {device} ")).collect();
        let devices = devices.concat();
        writeln!(
            out,
            "\t\ttype {kind} hook {hook} {devices}priority {priority}; policy {policy};"
        )?;
    }
    for rule in table.rules_of(&chain.name) {
        let text = context.text(&rule.expressions);
        match rule.comment() {
            Some(comment) => writeln!(out, "\t\t{text} comment \"{comment}\"")?,
            None => writeln!(out, "\t\t{text}")?,
        }
    }
    writeln!(out, "\t}}")
}

fn interface_name(index: u32) -> Option<String> {
    nix::net::if_::if_indextoname(index).ok()?.into_string().ok()
}
