//! The body of an answer, in chunks, with its faults.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::Fault;

/// Writes the events of a watch, one chunk each, until a fault breaks the connection.
pub(super) struct Events<'a, W> {
    socket: &'a mut W,
    fault: Option<Fault>,
    sent: usize,
}

/// Breaks the connection on purpose.
fn cut() -> io::Error {
    io::Error::other("cut on purpose")
}

impl<'a, W: AsyncWrite + Unpin> Events<'a, W> {
    /// Writes the head.
    pub(super) async fn open(socket: &'a mut W, fault: Option<Fault>) -> io::Result<Self> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).await?;
        socket.flush().await?;
        Ok(Self { socket, fault, sent: 0 })
    }

    /// Writes one event, or what the fault makes of it.
    pub(super) async fn event(&mut self, event: &Value) -> io::Result<()> {
        let line = format!("{event}\n");
        match self.fault {
            Some(Fault::CutAfter(count)) if count == self.sent => {
                self.chunk(&line.as_bytes()[..line.len() / 2]).await?;
                return Err(cut());
            }
            Some(Fault::GarbageAfter(count)) if count == self.sent => {
                self.sent += 1;
                return self.chunk(b"}garbage{\n").await;
            }
            Some(Fault::StaleBookmarkAfter(count)) if count == self.sent => {
                let stale = format!("{}\n", stale_bookmark(event));
                self.chunk(stale.as_bytes()).await?;
            }
            _ => {}
        }
        self.sent += 1;
        if self.fault == Some(Fault::Slow) {
            for byte in line.as_bytes() {
                self.chunk(&[*byte]).await?;
                tokio::task::yield_now().await;
            }
            return Ok(());
        }
        self.chunk(line.as_bytes()).await
    }

    /// Ends the answer in good order.
    pub(super) async fn close(self) -> io::Result<()> {
        self.socket.write_all(b"0\r\n\r\n").await?;
        self.socket.flush().await
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
        self.socket.write_all(bytes).await?;
        self.socket.write_all(b"\r\n").await?;
        self.socket.flush().await
    }
}

/// A bookmark that goes back in time, of the same kind as the event.
fn stale_bookmark(event: &Value) -> Value {
    let object = &event["object"];
    json!({"type": "BOOKMARK", "object": {
        "kind": object["kind"],
        "apiVersion": object["apiVersion"],
        "metadata": {"resourceVersion": "1"},
    }})
}
