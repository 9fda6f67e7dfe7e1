//! The daemon that runs in this network namespace, for commands beside it.
//!
//! The daemon serves HTTP at an abstract Unix socket. Such a socket belongs to a network namespace,
//! as the tables do: commands reach it from any mount namespace, it needs no folder that can be
//! written, and the kernel removes it with the process. The metrics port has nearly the same pages,
//! but its address is a setting and may be none.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use daemon::observe::{ServedContent, serve_local};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;
use tokio::time::Instant;

use super::failure::Failure;

/// Name of the socket, without the NUL before it.
const NAME: &str = "deltaproxy";

/// Time between two attempts to get the name: an earlier daemon may end soon.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit for each part of an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit of a whole answer: another program may have the name and never end.
const WHOLE: Duration = Duration::from_secs(15);

/// Longest answer in bytes.
const MOST: u64 = 16 << 20;

/// A running daemon.
#[derive(Debug)]
pub(super) struct Running {
    /// Its process; 0 if this command cannot see it.
    pub(super) process: i32,
    /// The user that it runs as.
    pub(super) user: u32,
    /// Its effective KubeProxyConfiguration.
    pub(super) configuration: Value,
}

impl Running {
    /// Returns the daemon of this network namespace; `None` if none runs.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) fn find() -> Result<Option<Self>, Failure> {
        Self::find_at(NAME).map_err(|error| {
            let what = "the settings of the running daemon cannot be read";
            Failure::new(format!("{what}: {error}; --settings flags does without them"))
        })
    }

    fn find_at(name: &str) -> io::Result<Option<Self>> {
        let Some(stream) = connect(name)? else { return Ok(None) };
        let peer = getsockopt(&stream, PeerCredentials)?;
        let mut answer = get(&stream, "/configuration.json")?;
        let configuration = match answer.get_mut("configuration") {
            Some(configuration) => configuration.take(),
            None => return Err(io::Error::other("the answer has no configuration")),
        };
        Ok(Some(Self { process: peer.pid(), user: peer.uid(), configuration }))
    }
}

/// Returns the JSON document of the running daemon at a path such as `/status.json`.
///
/// # Errors
/// No daemon runs in this network namespace, or it does not answer with a document.
#[cfg(feature = "inspect")]
pub(super) fn document(path: &str) -> Result<Value, Failure> {
    let none = || Failure::new("no daemon runs in this network namespace");
    let stream = connect(NAME).map_err(Failure::new)?.ok_or_else(none)?;
    let document = get(&stream, path).and_then(object);
    document.map_err(|error| Failure::new(format!("the running daemon does not answer: {error}")))
}

/// Accepts a document whose fields can be read.
#[cfg(feature = "inspect")]
fn object(document: Value) -> io::Result<Value> {
    if document.is_object() {
        return Ok(document);
    }
    Err(io::Error::other("its answer is not a JSON object: another program has the name"))
}

/// Connects to the daemon; `None` if none runs.
fn connect(name: &str) -> io::Result<Option<UnixStream>> {
    let stream = match UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(Some(stream))
}

/// Sends a request, and returns the document of its answer.
fn get(mut stream: &UnixStream, path: &str) -> io::Result<Value> {
    // A daemon of an earlier version sends at once and closes, which is an error here.
    let sent = write!(stream, "GET {path} HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let read = read_within(stream, WHOLE, &mut answer);
    match (parse(&answer), sent.and(read)) {
        (Err(Unread::Incomplete), Err(error)) => Err(error),
        (document, _) => document.map_err(io::Error::other),
    }
}

fn silent() -> io::Error {
    let message = format!("nothing arrived within {} s", LIMIT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Appends what a stream sends until its end, or [`MOST`] bytes.
fn read_within(stream: &UnixStream, time: Duration, answer: &mut Vec<u8>) -> io::Result<()> {
    let (since, mut stream, mut part) = (Instant::now(), stream.take(MOST), [0; 16 << 10]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The error of a timeout.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent()),
            Err(error) => return Err(error),
        }
        if since.elapsed() > time {
            return Err(io::Error::other(format!("it did not end within {} s", time.as_secs())));
        }
    }
}

/// Error of an answer.
#[derive(Debug, thiserror::Error)]
enum Unread {
    /// The answer ended too early, or is too long.
    #[error("its answer is not complete")]
    Incomplete,
    /// The answer is that of an earlier daemon, or of another program.
    #[error("its answer is not HTTP: it is of another version")]
    OtherVersion,
    /// The path is unknown.
    #[error("it does not know this question: it is of another version")]
    Unknown,
    /// Another status than 200.
    #[error("{0}")]
    Refused(String),
    /// The body is no JSON document.
    #[error("its answer cannot be parsed: {0}")]
    Document(#[from] serde_json::Error),
}

/// Parses an answer with `Content-Length`, which hyper sends for a whole body.
fn parse(answer: &[u8]) -> Result<Value, Unread> {
    const END: &[u8] = b"\r\n\r\n";
    if !answer.starts_with(b"HTTP/") {
        return Err(if answer.is_empty() { Unread::Incomplete } else { Unread::OtherVersion });
    }
    let end = answer.windows(END.len()).position(|it| it == END).ok_or(Unread::Incomplete)?;
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + END.len()..]);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split_once(' ')).map_or("", |(_, it)| it);
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    if length != Some(body.len()) {
        return Err(Unread::Incomplete);
    }
    if status.starts_with("404") {
        return Err(Unread::Unknown);
    }
    if !status.starts_with("200") {
        let why = String::from_utf8_lossy(body);
        return Err(Unread::Refused(format!("{status}: {}", why.trim_end())));
    }
    Ok(serde_json::from_slice(body)?)
}

/// Serves commands until the future is dropped.
pub(super) async fn serve(content: Arc<ServedContent>) {
    serve_at(NAME, content).await;
}

async fn serve_at(name: &str, content: Arc<ServedContent>) {
    serve_local(content, listen(name).await).await;
}

async fn listen(name: &str) -> tokio::net::UnixListener {
    let mut is_reported = false;
    loop {
        match bind(name) {
            Ok(listener) => return listener,
            Err(error) if is_reported => drop(error),
            Err(error) => {
                let what = "the settings are not offered to commands until the socket is free";
                tracing::info!("{what}: abstract socket {name}: {error}");
                is_reported = true;
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn bind(name: &str) -> io::Result<tokio::net::UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use daemon::observe::{Observe, Startup};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn settings_are_found_while_they_are_offered_even_by_two() {
        let name = format!("deltaproxy-test-{}", std::process::id());
        let find = || {
            let name = name.clone();
            tokio::task::spawn_blocking(move || Running::find_at(&name).unwrap())
        };
        assert!(find().await.unwrap().is_none());
        // More than the buffer of a socket.
        let long = "x".repeat(600_000);
        let offer = |configuration: Value| {
            let startup = Startup { configuration, ..Startup::default() };
            let content = Arc::new(ServedContent { startup, ..ServedContent::new(Observe::new()) });
            let name = name.clone();
            tokio::spawn(async move { serve_at(&name, content).await })
        };
        let first = offer(json!({ "clusterCIDR": long }));
        let found = async || loop {
            match find().await.unwrap() {
                Some(found) => return found.configuration["clusterCIDR"].clone(),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        assert_eq!(found().await, json!(long));
        let second = offer(json!({ "clusterCIDR": "::/0" }));
        first.abort();
        let _ = first.await;
        assert_eq!(found().await, json!("::/0"));
        second.abort();
    }

    #[test]
    fn an_answer_that_never_ends_is_given_up() {
        let (mut server, client) = UnixStream::pair().unwrap();
        let endless = std::thread::spawn(move || {
            while server.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let read = read_within(&client, Duration::from_millis(20), &mut Vec::new());
        assert_eq!(read.unwrap_err().to_string(), "it did not end within 0 s");
        drop(client);
        endless.join().unwrap();
    }

    #[test]
    fn silence_is_reported_as_such() {
        let (_server, client) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let error = get(&client, "/status.json").unwrap_err().to_string();
        assert_eq!(error, "nothing arrived within 5 s");
    }

    #[test]
    fn an_answer_that_is_no_object_is_refused() {
        for document in [json!(null), json!([]), json!(5), json!("x")] {
            let error = object(document).unwrap_err().to_string();
            assert!(error.starts_with("its answer is not a JSON object"), "{error}");
        }
        assert!(object(json!({})).is_ok());
    }

    /// Returns what a request gets from a server that sends `answer` without reading.
    fn answered(answer: &[u8]) -> Result<Value, String> {
        let (mut server, client) = UnixStream::pair().unwrap();
        server.write_all(answer).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        get(&client, "/status.json").map_err(|error| error.to_string())
    }

    #[test]
    fn a_daemon_that_does_not_speak_http_is_of_another_version() {
        let old = br#"{"version":"0.1.0","configuration":{}}"#;
        assert_eq!(
            answered(old),
            Err("its answer is not HTTP: it is of another version".to_owned())
        );
        let (mut server, client) = UnixStream::pair().unwrap();
        server.write_all(old).unwrap();
        drop(server);
        let error = get(&client, "/status.json").unwrap_err().to_string();
        assert_eq!(error, "its answer is not HTTP: it is of another version");
    }

    #[test]
    fn an_answer_is_used_only_whole_and_with_status_200() {
        let whole = b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(answered(whole), Ok(json!({ "a": 1 })));
        for length in 0..whole.len() {
            let error = answered(&whole[..length]).unwrap_err();
            let is_cut = error == "its answer is not complete";
            assert!(is_cut || (1..5).contains(&length), "{length}: {error}");
        }
        let with = |status: &str| {
            answered(format!("HTTP/1.0 {status}\r\ncontent-length: 6\r\n\r\nroot\r\n").as_bytes())
        };
        assert_eq!(with("403 Forbidden"), Err("403 Forbidden: root".to_owned()));
        assert!(with("404 Not Found").unwrap_err().ends_with("of another version"));
    }
}
