//! Connections one by one, with their clients.

use std::io::{self, Write};

use conntrack::Stage;
use engine::printable::Printable;
use serde_json::{Value, json};

use super::cells::{OrDash, age, socket, write_columns};
use crate::show::client_connections::{ClientConnection, ClientConnections};
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
    let lines = connections.listed().filter_map(|it| line(view, it));
    let lines: Vec<_> = [titles.map(str::to_owned)].into_iter().chain(lines).collect();
    write_columns(out, 5, &lines)?;
    match connections.more() {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
}

fn line(view: &View<'_>, listed: ClientConnection<'_>) -> Option<[String; 7]> {
    let ClientConnection { place, connection } = listed;
    let entry = view.services.entries().get(place)?;
    Some([
        Printable(&entry.label).to_string(),
        view.address(&entry.frontend),
        socket(connection.answered_by).to_string(),
        OrDash(connection.client.map(socket)).to_string(),
        word(connection.stage).to_owned(),
        OrDash(view.age(connection.started).map(age)).to_string(),
        OrDash(connection.bytes).to_string(),
    ])
}

fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::New => "new",
        Stage::Active => "active",
        Stage::Ended => "ended",
    }
}

/// Returns the connections as a document.
pub fn client_connections_document(view: &View<'_>, connections: &ClientConnections) -> Value {
    let items = connections.listed().filter_map(|ClientConnection { place, connection }| {
        let entry = view.services.entries().get(place)?;
        Some(json!({
            "service": &*entry.label,
            "frontend": view.address(&entry.frontend),
            "endpoint": socket(connection.answered_by),
            "client": connection.client.map(socket),
            "state": word(connection.stage),
            "age_seconds": view.age(connection.started).map(|age| age.as_secs()),
            "bytes": connection.bytes,
        }))
    });
    let items: Vec<_> = items.collect();
    json!({ "torn": view.services.is_torn(), "more": connections.more(), "connections": items })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, written};
    use super::*;

    #[test]
    fn each_connection_has_its_client_state_age_and_bytes() {
        let sample = Sample::new();
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
        let words = [Stage::New, Stage::Active, Stage::Ended].map(word);
        assert_eq!(words, ["new", "active", "ended"]);
    }
}
