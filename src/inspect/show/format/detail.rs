//! Each frontend with a line for each endpoint.

use std::fmt::Display;
use std::io::{self, Write};

use engine::printable::Printable;
use engine::ruleset::{Refusal, Unserved};
use nft::Counter;

use super::cells::{OrDash, age, percent, share, write_columns};
use crate::show::row::{EndpointRow, EndpointState, Kind, Policy, Row, Scheduler};
use crate::show::services::Entry;
use crate::show::view::View;

/// Writes the frontends with their endpoints.
///
/// # Errors
/// Errors of `out`.
pub fn detail(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut label = None;
    for row in view.rows() {
        if label != Some(&row.entry.label) {
            let text = if row.entry.label.is_empty() { "(no name)" } else { &row.entry.label };
            writeln!(out, "{}{}", if label.is_some() { "\n" } else { "" }, Printable(text))?;
            label = Some(&row.entry.label);
        }
        write_frontend(out, view, &row)?;
        write_endpoints(out, view, &row)?;
    }
    Ok(())
}

fn write_frontend(out: &mut dyn Write, view: &View<'_>, row: &Row<'_>) -> io::Result<()> {
    let kind: &str = match row.kind {
        Kind::ClusterIp => "cluster IP",
        Kind::External => "external address",
        Kind::LoadBalancer => &format!("load balancer address, for {}", sources(row.entry)),
        Kind::NodePort => &node_port(view, row.entry),
        Kind::ClosedNodePort => "node port, which no address of this node serves",
    };
    let side = if row.kind == Kind::ClusterIp { "internal" } else { "external" };
    let policy = match row.policy {
        Some(policy) => format!("{side} policy {}", policy.name()),
        None => format!("{side} policy not known"),
    };
    let scheduler = match row.scheduler {
        Scheduler::Unserved(Unserved::Refuse) => "refused: no endpoint".to_owned(),
        Scheduler::Unserved(Unserved::Drop) => "dropped: no endpoint on this node".to_owned(),
        chosen @ (Scheduler::Chosen(_) | Scheduler::Affinity(..)) => chosen.to_string(),
    };
    write!(out, "  {}  {kind}, {policy}, {scheduler}", view.address(&row.entry.frontend))?;
    if row.entry.is_direct {
        write!(out, ", direct return")?;
    }
    if let Some(clients) = row.clients {
        write!(out, ", client hashes: {clients}")?;
    }
    if let Some(Counter { packets, bytes }) = row.entry.counted {
        write!(out, ", {packets} connections counted with {bytes} bytes")?;
    }
    for (reason, Counter { packets, bytes }) in &row.entry.refused {
        write!(out, ", {packets} packets {} ({bytes} bytes)", fate(*reason))?;
    }
    let is_of_own = row.policy == Some(Policy::Local) || row.entry.is_direct;
    if row.has_two_ways() && is_of_own {
        write!(out, "; from pods and this node to all endpoints")?;
    }
    writeln!(out)
}

/// Describes what happened to packets that were refused for a reason.
fn fate(reason: Refusal) -> &'static str {
    match reason {
        Refusal::NoEndpoint
        | Refusal::UnknownPort
        | Refusal::LocalhostUdp
        | Refusal::LocalhostSctp
        | Refusal::EndedEndpoint => "rejected",
        Refusal::SourceRange => "of other sources dropped",
        Refusal::NoLocalEndpoint | Refusal::UnallocatedAddress | Refusal::Loopback => "dropped",
    }
}

/// Most ranges or addresses that a line lists.
const MOST_LISTED: usize = 20;

/// Describes the sources that may use a load balancer address.
fn sources(entry: &Entry) -> String {
    match entry.source_ranges.as_deref().unwrap_or_default() {
        [] => "no source".to_owned(),
        ranges => format!("sources {} only", listed(ranges)),
    }
}

fn node_port(view: &View<'_>, entry: &Entry) -> String {
    match view.services.node_port_addresses(entry.frontend.family()) {
        None => "node port at every address of this node".to_owned(),
        Some(addresses) if addresses.len() < 2 => "node port".to_owned(),
        Some(addresses) => format!("node port at {}", listed(addresses)),
    }
}

fn listed(items: impl IntoIterator<Item: Display, IntoIter: ExactSizeIterator>) -> String {
    let items = items.into_iter();
    let more = items.len().saturating_sub(MOST_LISTED);
    let mut texts: Vec<_> = items.take(MOST_LISTED).map(|item| item.to_string()).collect();
    texts.extend((more > 0).then(|| format!("{more} more")));
    texts.join(", ")
}

fn write_endpoints(out: &mut dyn Write, view: &View<'_>, row: &Row<'_>) -> io::Result<()> {
    if row.endpoints.is_empty() {
        return Ok(());
    }
    let sum = row.connections.unwrap_or_default();
    let mut lines = vec![titles(view, row)];
    lines.extend(row.endpoints.iter().map(|endpoint| {
        let counts = &endpoint.connections;
        let is_serving = endpoint.state == EndpointState::Serving;
        let count = |count: u32| OrDash(view.connections.map(|_| count)).to_string();
        let mut cells = vec![
            format!("    {}", row.entry.endpoint(endpoint.target)),
            place(endpoint).to_owned(),
            OrDash(is_serving.then(|| share(endpoint.share))).to_string(),
        ];
        let internal = is_serving.then(|| share(endpoint.internal_share));
        cells.extend(row.has_two_ways().then(|| OrDash(internal).to_string()));
        cells.extend([count(counts.active), count(counts.new), count(counts.ended)]);
        cells.push(percent(counts.all(), sum.all()));
        if view.has_began() {
            cells.extend([count(counts.began), percent(counts.began, sum.began)]);
        }
        cells.extend(row.clients.map(|_| OrDash(endpoint.clients).to_string()));
        if counts_endpoints(row) {
            let counted = |number: fn(Counter) -> u64| OrDash(endpoint.counted.map(number));
            cells.push(counted(|it| it.packets).to_string());
            cells.push(counted(|it| it.bytes).to_string());
        }
        cells.push(OrDash(view.age(counts.oldest).map(age)).to_string());
        cells
    }));
    write_columns(out, 2, &lines)
}

fn titles(view: &View<'_>, row: &Row<'_>) -> Vec<String> {
    let mut titles = vec!["    ENDPOINT", "PLACE", "CHANCE"];
    titles.extend(row.has_two_ways().then_some("FROM-PODS"));
    titles.extend(["ACTIVE", "NEW", "ENDED", "SHARE"]);
    titles.extend(view.has_began().then_some(["BEGAN", "OF-BEGAN"]).into_iter().flatten());
    titles.extend(row.clients.map(|_| "CLIENTS"));
    titles.extend(counts_endpoints(row).then_some(["COUNTED", "BYTES"]).into_iter().flatten());
    titles.push("OLDEST");
    titles.into_iter().map(str::to_owned).collect()
}

fn counts_endpoints(row: &Row<'_>) -> bool {
    row.endpoints.iter().any(|endpoint| endpoint.counted.is_some())
}

/// Returns the location of an endpoint, or why it gets no new connections.
fn place(endpoint: &EndpointRow) -> &'static str {
    match (endpoint.state, endpoint.is_local) {
        (EndpointState::Serving, Some(true)) => "local",
        (EndpointState::Serving, _) => "remote",
        (state, _) => state.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SampleServices, written};
    use super::*;

    #[test]
    fn a_service_has_its_endpoints_and_their_connections() {
        let expected = "\
default/sticky
  10.96.0.20:80/tcp  cluster IP, internal policy Cluster, affinity 10800s, client hashes: 1
    ENDPOINT         PLACE   CHANCE  ACTIVE  NEW  ENDED   SHARE  BEGAN  OF-BEGAN  CLIENTS  OLDEST
    10.244.2.8:8080  remote  100.0%       1    0      0  100.0%      1    100.0%        1      3s
";
        let sticky = SampleServices::new().of("default/sticky");
        assert_eq!(written(|out| detail(out, &sticky.view())), expected);
        let expected = "\
default/web:http
  10.96.0.10:80/tcp  cluster IP, internal policy Cluster, random
    ENDPOINT         PLACE     CHANCE  ACTIVE  NEW  ENDED  SHARE  BEGAN  OF-BEGAN  OLDEST
    10.244.1.5:8080  local      50.0%       2    0      0  40.0%      1     25.0%    2h5m
    10.244.2.7:8080  remote     50.0%       0    1      1  40.0%      2     50.0%      1s
    10.244.1.6:8080  draining       -       1    0      0  20.0%      1     25.0%   7m10s
  *:30080/tcp  node port at every address of this node, external policy Local, random; from pods and this node to all endpoints
    ENDPOINT         PLACE   CHANCE  FROM-PODS  ACTIVE  NEW  ENDED   SHARE  BEGAN  OF-BEGAN  OLDEST
    10.244.1.5:8080  local   100.0%      50.0%       1    0      0  100.0%      1    100.0%      3s
    10.244.2.7:8080  remote    0.0%      50.0%       0    0      0    0.0%      0      0.0%       -
";
        let web = SampleServices::new().of("default/web:http");
        assert_eq!(written(|out| detail(out, &web.view())), expected);
    }

    #[test]
    fn source_ranges_and_the_addresses_of_node_ports_are_named() {
        let sample = SampleServices::new().with_source_ranges(&["192.0.2.0/24", "198.51.100.7/32"]);
        let first = |sample: &SampleServices| {
            let text = written(|out| detail(out, &sample.view()));
            text.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(
            first(&sample.of("default/empty")),
            "  10.96.0.30:80/tcp  load balancer address, for sources 192.0.2.0/24, 198.51.100.7/32 \
             only, external policy not known, refused: no endpoint"
        );
        let node_port = |addresses: &[&str]| {
            let sample =
                SampleServices::new().with_node_port_addresses(addresses).of("192.168.50.2:30080");
            first(&sample)
        };
        let rest = "external policy Local, random; from pods and this node to all endpoints";
        let one = format!("  192.168.50.2:30080/tcp  node port, {rest}");
        assert_eq!(node_port(&["192.168.50.2"]), one);
        let two = "192.168.50.2+1:30080/tcp  node port at 192.168.50.2, 192.168.60.2";
        assert_eq!(node_port(&["192.168.60.2", "192.168.50.2"]), format!("  {two}, {rest}"));
    }

    #[test]
    fn a_frontend_has_the_packets_that_it_refused() {
        let empty = SampleServices::new().refusing().of("default/empty");
        let expected = "\
default/empty
  10.96.0.30:80/tcp  cluster IP, internal policy not known, refused: no endpoint, 12 packets rejected (720 bytes)
";
        assert_eq!(written(|out| detail(out, &empty.view())), expected);
    }

    #[test]
    fn an_address_with_direct_return_says_so() {
        let web = SampleServices::new().direct().of("default/web");
        let expected =
            "  10.96.0.10:80/tcp  cluster IP, internal policy Cluster, random, direct return";
        assert_eq!(written(|out| detail(out, &web.view())).lines().nth(1), Some(expected));
    }

    #[test]
    fn endpoints_and_frontends_have_what_they_counted() {
        let sample = SampleServices::new().counted().of("default/web");
        let expected = "\
default/web:http
  10.96.0.10:80/tcp  cluster IP, internal policy Cluster, random, 2 connections counted with 120 bytes
    ENDPOINT         PLACE   CHANCE  ACTIVE  NEW  ENDED  SHARE  COUNTED  BYTES  OLDEST
    10.244.1.5:8080  local    50.0%       -    -      -      -        1     60       -
    10.244.2.7:8080  remote   50.0%       -    -      -      -        2    120       -
  *:30080/tcp  node port at every address of this node, external policy Local, random, 3 connections counted with 180 bytes; from pods and this node to all endpoints
    ENDPOINT         PLACE   CHANCE  FROM-PODS  ACTIVE  NEW  ENDED  SHARE  COUNTED  BYTES  OLDEST
    10.244.1.5:8080  local   100.0%      50.0%       -    -      -      -        2    120       -
    10.244.2.7:8080  remote    0.0%      50.0%       -    -      -      -        2    120       -
";
        assert_eq!(written(|out| detail(out, &sample.without_connections())), expected);
    }
}
