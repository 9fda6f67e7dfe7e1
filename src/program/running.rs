//! The daemon that runs in this network namespace, for commands beside it.
//!
//! The daemon serves HTTP at an abstract Unix socket. Such a socket belongs to a network namespace,
//! as the tables do: commands reach it from any mount namespace, it needs no folder that can be
//! written, and the kernel removes it with the process. The metrics port has nearly the same pages,
//! but its address is a setting and may be none.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use daemon::observe::{ServedContent, serve_local};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;

use super::client::{AnswerError, get, within};
use super::failure::Failure;

/// Name of the socket, without the NUL before it.
const NAME: &str = "deltaproxy";

/// Time between two attempts to get the name: an earlier daemon may end soon.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit of an answer: another program may have the name and never end.
const LIMIT: Duration = Duration::from_secs(15);

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

    fn find_at(name: &str) -> Result<Option<Self>, AnswerError> {
        let Some(stream) = connect(name)? else { return Ok(None) };
        let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
        let mut answer = ask(stream, "/configuration.json")?;
        let configuration = match answer.get_mut("configuration") {
            Some(configuration) => configuration.take(),
            None => return Err(AnswerError::Foreign("configuration")),
        };
        Ok(Some(Self { process: peer.pid(), user: peer.uid(), configuration }))
    }
}

/// Returns the JSON document of the running daemon at a path such as `/status.json`.
///
/// # Errors
/// No daemon runs in this network namespace, or it does not answer with a document.
#[cfg(feature = "inspect")]
pub(super) fn document(path: &'static str) -> Result<Value, Failure> {
    let none = || Failure::new("no daemon runs in this network namespace");
    let stream = connect(NAME).map_err(Failure::new)?.ok_or_else(none)?;
    let document = ask(stream, path).and_then(object);
    document.map_err(|error| Failure::new(format!("the running daemon does not answer: {error}")))
}

/// Accepts a document whose fields can be read.
#[cfg(feature = "inspect")]
fn object(document: Value) -> Result<Value, AnswerError> {
    if document.is_object() { Ok(document) } else { Err(AnswerError::Foreign("JSON object")) }
}

/// Connects to the daemon; `None` if none runs.
fn connect(name: &str) -> io::Result<Option<UnixStream>> {
    let stream = match UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_nonblocking(true)?;
    Ok(Some(stream))
}

/// Returns the document of the answer to a request.
fn ask(stream: UnixStream, path: &'static str) -> Result<Value, AnswerError> {
    let body = within(LIMIT, async { get(tokio::net::UnixStream::from_std(stream)?, path).await })?;
    Ok(serde_json::from_slice(&body)?)
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
    fn an_answer_that_is_no_object_is_refused() {
        for document in [json!(null), json!([]), json!(5), json!("x")] {
            let error = object(document).unwrap_err().to_string();
            assert!(error.starts_with("its answer is no JSON object"), "{error}");
        }
        assert!(object(json!({})).is_ok());
    }
}
