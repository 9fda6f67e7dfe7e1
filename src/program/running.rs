//! The settings of the daemon that runs in this network namespace, for commands beside it.
//!
//! The daemon offers them at an abstract Unix socket. Such a socket belongs to a network namespace,
//! as the tables do: commands reach it from any mount namespace, it needs no folder that can be
//! written, and the kernel removes it with the process. `/configz` has the same content, but its
//! address is a setting and may be none.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::{Value, json};

use super::failure::Failure;

/// Name of the socket, without the NUL before it.
const NAME: &str = "deltaproxy";

/// Time between two attempts to get the name: an earlier daemon may end soon.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit for one answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Longest answer in bytes; one with a thousand ranges has some 50 KB.
const MOST: u64 = 1 << 20;

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
        let stream = match UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(LIMIT))?;
        let peer = getsockopt(&stream, PeerCredentials)?;
        let mut text = Vec::new();
        stream.take(MOST).read_to_end(&mut text)?;
        let mut answer: Value = serde_json::from_slice(&text)?;
        let configuration = match answer.get_mut("configuration") {
            Some(configuration) => configuration.take(),
            None => return Err(io::Error::other("the answer has no configuration")),
        };
        Ok(Some(Self { process: peer.pid(), user: peer.uid(), configuration }))
    }
}

/// Offers a configuration to commands until the future is dropped.
pub(super) async fn offer(configuration: Value) {
    offer_at(NAME, configuration).await;
}

async fn offer_at(name: &str, configuration: Value) {
    let version = env!("CARGO_PKG_VERSION");
    let text = json!({ "version": version, "configuration": configuration }).to_string();
    let listener = listen(name).await;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A client that does not read gets less, and delays others by this time.
                let _ = tokio::time::timeout(LIMIT, write(&stream, text.as_bytes())).await;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
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

async fn write(stream: &tokio::net::UnixStream, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        stream.writable().await?;
        match stream.try_write(text) {
            Ok(count) => text = text.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        let offer = |value: Value| {
            let name = name.clone();
            tokio::spawn(async move { offer_at(&name, value).await })
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
}
