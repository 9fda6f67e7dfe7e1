//! Answers of the daemon's ports for health and metrics.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use test_hosts::{Host, stretched};

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What follows the head.
    pub body: String,
}

/// The answer to a request for `path` at a port of 127.0.0.1; `None` if there is none.
#[must_use]
pub fn get(host: &Host, port: u16, path: &str) -> Option<Response> {
    get_as(host, ("node", ""), port, path)
}

/// The same, with this name of the host, and with further header lines.
#[must_use]
pub fn get_as(
    host: &Host,
    (name, headers): (&str, &str),
    port: u16,
    path: &str,
) -> Option<Response> {
    let answer = host.run(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(stretched(LIMIT)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {name}\r\n{headers}connection: close\r\n\r\n"
        )?;
        io::read_to_string(stream)
    });
    let answer = answer.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, body: body.to_owned() })
}

/// The body of that answer; empty if there is none.
#[must_use]
pub fn body(host: &Host, port: u16, path: &str) -> String {
    get(host, port, path).map(|response| response.body).unwrap_or_default()
}

/// How long an answer may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(15);
