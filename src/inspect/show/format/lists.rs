//! Lists of single things: connections with their clients, draining endpoints, and packets that were
//! rejected or dropped.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use engine::printable::Printable;
use engine::ruleset::Refusal;
use nft::Counter;
use serde_json::{Value, json};

use super::cells::{OrDash, age, socket, write_table};
use crate::show::client_connections::ClientConnections;
use crate::show::services::Entry;
use crate::show::view::View;

/// Writes a line for each connection, and the number of those that are not listed.
///
/// # Errors
/// Errors of `out`.
pub fn client_connections(
    out: &mut dyn Write,
    view: &View<'_>,
    connections: &ClientConnections,
) -> io::Result<()> {
    let titles = ["SERVICE", "ADDRESS", "ENDPOINT", "CLIENT", "STATE", "AGE", "BYTES"];
    let lines = connections.listed().filter_map(|(place, connection)| {
        let mut line = frontend(view, view.services.entries().get(place)?);
        line.extend([
            socket(connection.answered_by).to_string(),
            OrDash(connection.client.map(socket)).to_string(),
            connection.stage.name().to_owned(),
            OrDash(view.age(connection.started).map(age)).to_string(),
            OrDash(connection.bytes).to_string(),
        ]);
        Some(line)
    });
    write_table(out, 5, &titles, lines)?;
    match connections.more() {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
}

/// Returns the connections as a document.
pub fn client_connections_document(view: &View<'_>, connections: &ClientConnections) -> Value {
    let items = connections.listed().filter_map(|(place, connection)| {
        let entry = view.services.entries().get(place)?;
        Some(json!({
            "service": &*entry.label,
            "frontend": view.address(&entry.frontend),
            "endpoint": socket(connection.answered_by),
            "client": connection.client.map(socket),
            "state": connection.stage.name(),
            "age_seconds": view.age(connection.started).map(|age| age.as_secs()),
            "bytes": connection.bytes,
        }))
    });
    let items: Vec<_> = items.collect();
    json!({ "torn": view.services.is_torn(), "more": connections.more(), "connections": items })
}

/// Writes a line for each draining endpoint, or a sentence if there are none.
///
/// # Errors
/// Errors of `out`.
pub fn draining(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let lines = view.draining().map(|(entry, target, counts)| {
        let mut line = frontend(view, entry);
        let oldest = OrDash(view.age(counts.oldest).map(age)).to_string();
        line.extend([entry.endpoint(target), counts.live().to_string(), oldest]);
        line
    });
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return writeln!(out, "no endpoint is draining");
    }
    write_table(out, 3, &["SERVICE", "ADDRESS", "ENDPOINT", "CONNECTIONS", "OLDEST"], lines)
}

/// Writes the packets by reason, unless some services are `selected`, and a line for each frontend
/// that refused some.
///
/// # Errors
/// Errors of `out`.
pub fn refused(out: &mut dyn Write, view: &View<'_>, selected: bool) -> io::Result<()> {
    let counts = |reason: Refusal, counter: Counter| {
        [reason.name().to_owned(), counter.packets.to_string(), counter.bytes.to_string()]
    };
    if !selected {
        let mut reasons: BTreeMap<Refusal, Counter> = BTreeMap::new();
        for ((_, reason), counter) in view.services.refused() {
            *reasons.entry(*reason).or_default() += *counter;
        }
        let lines = reasons.into_iter().map(|(reason, counter)| counts(reason, counter).into());
        write_table(out, 1, &["REASON", "PACKETS", "BYTES"], lines)?;
        writeln!(out)?;
    }
    let frontends = frontends(view);
    if frontends.is_empty() {
        return writeln!(out, "no packet to an address of these services was refused");
    }
    let lines = frontends.into_iter().map(|(entry, reason, counter)| {
        let mut line = frontend(view, entry);
        line.extend(counts(reason, counter));
        line
    });
    write_table(out, 3, &["SERVICE", "ADDRESS", "REASON", "PACKETS", "BYTES"], lines)
}

/// Returns both as a document: `reasons` of all services and of none, `refused` of the selected
/// services.
pub fn refused_document(view: &View<'_>) -> Value {
    let reasons = view.services.refused().iter().map(|((family, reason), counter)| {
        json!({
            "family": family.name(),
            "reason": reason.name(),
            "packets": counter.packets,
            "bytes": counter.bytes,
        })
    });
    let reasons: Vec<_> = reasons.collect();
    let refused = frontends(view).into_iter().map(|(entry, reason, counter)| {
        json!({
            "service": &*entry.label,
            "frontend": view.address(&entry.frontend),
            "family": entry.frontend.family().name(),
            "reason": reason.name(),
            "packets": counter.packets,
            "bytes": counter.bytes,
        })
    });
    let refused: Vec<_> = refused.collect();
    json!({ "torn": view.services.is_torn(), "reasons": reasons, "refused": refused })
}

/// Returns the frontends that refused packets, by descending number.
fn frontends<'a>(view: &View<'a>) -> Vec<(&'a Entry, Refusal, Counter)> {
    let all = view.entries().flat_map(|entry| {
        entry.refused.iter().map(move |(reason, counter)| (entry, *reason, *counter))
    });
    let mut found: Vec<_> = all.filter(|(.., counter)| counter.packets > 0).collect();
    // Entries are sorted, and the sort is stable.
    found.sort_by_key(|(.., counter)| Reverse(counter.packets));
    found
}

/// Returns the first cells of a line.
fn frontend(view: &View<'_>, entry: &Entry) -> Vec<String> {
    vec![Printable(&entry.label).to_string(), view.address(&entry.frontend)]
}

#[cfg(test)]
mod tests {
    use conntrack::Stage;

    use super::super::sample::{SampleServices, written};
    use super::*;

    #[test]
    fn each_connection_has_its_client_state_age_and_bytes() {
        let sample = SampleServices::new();
        let list = sample.client_connections();
        let expected = "\
SERVICE           ADDRESS            ENDPOINT         CLIENT           STATE     AGE  BYTES
default/web:http  10.96.0.10:80/tcp  10.244.1.5:8080  192.0.2.7:40001  active   2h5m    120
default/web:http  10.96.0.10:80/tcp  10.244.1.6:8080  192.0.2.7:40002  ended   7m10s    120
";
        assert_eq!(written(|out| client_connections(out, &sample.view(), &list)), expected);
        let document = client_connections_document(&sample.view(), &list);
        assert_eq!(document["more"], 0);
        let first = json!({
            "service": "default/web:http", "frontend": "10.96.0.10:80/tcp",
            "endpoint": "10.244.1.5:8080", "client": "192.0.2.7:40001", "state": "active",
            "age_seconds": 7500, "bytes": 120,
        });
        assert_eq!(document["connections"][0], first);
    }

    #[test]
    fn each_stage_has_its_word() {
        let words = [Stage::New, Stage::Active, Stage::Ended].map(Stage::name);
        assert_eq!(words, ["new", "active", "ended"]);
    }

    #[test]
    fn draining_endpoints_have_the_count_and_age_of_their_connections() {
        let sample = SampleServices::new();
        let expected = "\
SERVICE           ADDRESS            ENDPOINT         CONNECTIONS  OLDEST
default/web:http  10.96.0.10:80/tcp  10.244.1.6:8080            1   7m10s
";
        assert_eq!(written(|out| draining(out, &sample.view())), expected);
        let sample = sample.of("default/sticky");
        let nothing = "no endpoint is draining\n";
        assert_eq!(written(|out| draining(out, &sample.view())), nothing);
    }

    #[test]
    fn the_frontends_with_the_most_refused_packets_come_first() {
        let sample = SampleServices::new().refusing();
        let expected = "\
REASON               PACKETS  BYTES
no_endpoint               15    900
unallocated_address        2    120

SERVICE           ADDRESS            REASON             PACKETS  BYTES
default/empty     10.96.0.30:80/tcp  no_endpoint             12    720
default/web:http  *:30080/tcp        no_local_endpoint        3    180
";
        assert_eq!(written(|out| refused(out, &sample.view(), false)), expected);
        let web = sample.of("default/web");
        let expected = "\
SERVICE           ADDRESS      REASON             PACKETS  BYTES
default/web:http  *:30080/tcp  no_local_endpoint        3    180
";
        assert_eq!(written(|out| refused(out, &web.view(), true)), expected);
        let nothing = "no packet to an address of these services was refused\n";
        let sticky = web.of("default/sticky");
        assert_eq!(written(|out| refused(out, &sticky.view(), true)), nothing);
    }

    #[test]
    fn the_document_has_the_same() {
        let sample = SampleServices::new().refusing().of("default/web");
        let document = refused_document(&sample.view());
        let first = json!({
            "family": "IPv4", "reason": "no_endpoint", "packets": 12, "bytes": 720,
        });
        assert_eq!(document["reasons"][0], first);
        assert_eq!(document["reasons"].as_array().unwrap().len(), 3);
        let only = json!([{
            "service": "default/web:http", "frontend": "*:30080/tcp", "family": "IPv4",
            "reason": "no_local_endpoint", "packets": 3, "bytes": 180,
        }]);
        assert_eq!(document["refused"], only);
    }
}
