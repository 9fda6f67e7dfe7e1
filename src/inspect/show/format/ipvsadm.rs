//! The layout of `ipvsadm -Ln`, for its users and their scripts.
//!
//! Column widths are those of ipvsadm 1.31. `Masq` is its term for DNAT. A weight is the number of
//! slots in the list, or 1 if all endpoints have equally many. Draining endpoints have weight 0, as
//! operators of IPVS set it. Inactive connections are unanswered or ended.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use engine::ruleset::Frontend;
use nft::family::Family;

use crate::show::row::{Choice, EndpointState, Row, Scheduler};
use crate::show::view::View;

/// Writes a virtual server for each frontend, and a line for each endpoint.
///
/// # Errors
/// Errors of `out`.
pub fn ipvsadm(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "Service proxy deltaproxy version {version} (size={})", view.places.len())?;
    writeln!(out, "Prot LocalAddress:Port Scheduler Flags")?;
    writeln!(out, "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn")?;
    for row in view.rows() {
        let frontend = &row.entry.frontend;
        let protocol = frontend.protocol().to_string().to_uppercase();
        write!(out, "{protocol:<4} {} ", local(view, frontend))?;
        match row.scheduler {
            Scheduler::Affinity(choice, Some(seconds)) => {
                writeln!(out, "{} persistent {seconds}", choice.name())?;
            }
            Scheduler::Affinity(choice, None) => writeln!(out, "{} persistent", choice.name())?,
            Scheduler::Chosen(choice) => writeln!(out, "{}", choice.name())?,
            Scheduler::Unserved(_) => writeln!(out, "{}", Choice::Random.name())?,
        }
        let is_even = is_even(&row);
        for endpoint in &row.endpoints {
            let weight = match endpoint.state {
                EndpointState::Serving if is_even => 1,
                EndpointState::Serving => endpoint.slots,
                EndpointState::Elsewhere | EndpointState::Draining => 0,
                EndpointState::Gone => continue,
            };
            let counts = &endpoint.connections;
            let (active, inactive) = (counts.active, counts.new.saturating_add(counts.ended));
            let remote = row.entry.endpoint(endpoint.target);
            writeln!(out, "  -> {remote:<28} Masq    {weight:<6} {active:<10} {inactive:<10}")?;
        }
    }
    Ok(())
}

/// Returns whether all endpoints have equally many slots, up to a difference of one: a table rarely
/// divides evenly.
fn is_even(row: &Row<'_>) -> bool {
    let serving = row.endpoints.iter().filter(|it| it.state == EndpointState::Serving);
    let slots = || serving.clone().map(|it| it.slots).filter(|slots| *slots > 0);
    let difference = slots().max().zip(slots().min()).map_or(0, |(most, fewest)| most - fewest);
    let is_table = matches!(
        row.scheduler,
        Scheduler::Chosen(Choice::Maglev(_)) | Scheduler::Affinity(Choice::Maglev(_), _)
    );
    difference <= u32::from(is_table)
}

/// Returns address and port; the address of a node port is unspecified unless one alone serves it.
fn local(view: &View<'_>, frontend: &Frontend) -> SocketAddr {
    let addresses = view.services.node_port_addresses(frontend.family());
    let alone = addresses.filter(|it| it.len() == 1).and_then(BTreeSet::first);
    match (*frontend, alone) {
        (Frontend::Address { address, port, .. }, _) => SocketAddr::new(address, port.get()),
        // As a virtual server of all ports, with `-p`.
        (Frontend::Ranges { address, .. }, _) => SocketAddr::new(address, 0),
        (Frontend::NodePort { port, .. }, Some(alone)) => SocketAddr::new(*alone, port.get()),
        (Frontend::NodePort { family: Family::Ip, port, .. }, _) => {
            SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.get())
        }
        (Frontend::NodePort { family: Family::Ip6, port, .. }, _) => {
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port.get())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SampleServices, written};
    use super::*;

    #[test]
    fn services_look_as_ipvsadm_lists_them() {
        let sample = SampleServices::new();
        let expected = "\
TCP  10.96.0.30:80 random
TCP  10.96.0.20:80 random persistent 10800
  -> 10.244.2.8:8080              Masq    1      1          0
TCP  10.96.0.10:80 random
  -> 10.244.1.5:8080              Masq    1      2          0
  -> 10.244.2.7:8080              Masq    1      0          2
  -> 10.244.1.6:8080              Masq    0      1          0
TCP  0.0.0.0:30080 random
  -> 10.244.1.5:8080              Masq    1      1          0
  -> 10.244.2.7:8080              Masq    1      0          0";
        let text = written(|out| ipvsadm(out, &sample.view()));
        // ipvsadm pads the last column too. Scripts skip its three header lines.
        let lines: Vec<_> = text.lines().skip(3).map(str::trim_end).collect();
        assert_eq!(lines.join("\n"), expected);
        assert!(text.lines().skip(4).all(|line| !line.starts_with("  ->") || line.len() == 70));
    }
}
