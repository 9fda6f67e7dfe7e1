//! The node ports at `[::1]` that the running daemon serves, for `show` and `explain`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use engine::model::Protocol;
use engine::ruleset::Frontend;
use inspect::show::View;

use super::running;

/// Writes a line for each selected TCP node port that the daemon serves at `[::1]`. Nothing without
/// a daemon that answers: the tables do not know these.
pub(super) fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let selected: BTreeSet<u16> = view.entries().filter_map(|it| node_port(&it.frontend)).collect();
    if selected.is_empty() {
        return Ok(());
    }
    for port in ports().intersection(&selected) {
        writeln!(out, "  [::1]:{port}/tcp  node port, served by the daemon")?;
    }
    Ok(())
}

/// Returns the TCP node ports that the daemon serves at `[::1]`.
pub(super) fn ports() -> BTreeSet<u16> {
    let answer = running::document("/localhost.json").unwrap_or_default();
    let served = answer["node_ports"].as_array().into_iter().flatten();
    served.filter_map(|port| u16::try_from(port.as_u64()?).ok()).collect()
}

fn node_port(frontend: &Frontend) -> Option<u16> {
    match frontend {
        Frontend::NodePort { protocol: Protocol::Tcp, port, .. } => Some(port.get()),
        Frontend::NodePort { .. } | Frontend::Address { .. } | Frontend::Ranges { .. } => None,
    }
}
