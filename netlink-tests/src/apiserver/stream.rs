//! The body of an answer, in chunks, with its faults.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::fault::Fault;
use super::form::Form;

/// Writes the events of a watch, one chunk each, until a fault breaks the connection.
///
/// Like kube-apiserver (`ServeHTTP` of its `WatchServer`), it flushes only after the last event at
/// hand, so that many small events share a packet.
pub(super) struct Events<'a, W> {
    socket: &'a mut W,
    form: Form,
    fault: Option<Fault>,
    sent: usize,
    written: Vec<u8>,
}

/// Bytes that are sent at once.
const PACKET: usize = 16 << 10;

/// Breaks the connection on purpose.
fn cut() -> io::Error {
    io::Error::other("cut on purpose")
}

impl<'a, W: AsyncWrite + Unpin> Events<'a, W> {
    /// Writes the head.
    pub(super) async fn open(
        socket: &'a mut W,
        form: Form,
        fault: Option<Fault>,
    ) -> io::Result<Self> {
        let media_type = form.media_type();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type};stream=watch\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await?;
        socket.flush().await?;
        Ok(Self { socket, form, fault, sent: 0, written: Vec::new() })
    }

    /// Writes one event, changed by the fault, and flushes it.
    pub(super) async fn event(&mut self, event: &Value) -> io::Result<()> {
        self.write(event).await?;
        self.flush().await
    }

    /// Writes one event, changed by the fault.
    pub(super) async fn write(&mut self, event: &Value) -> io::Result<()> {
        let mut event = event.clone();
        if let Some(Fault::OtherKind(version, kind)) = self.fault {
            event["object"]["apiVersion"] = version.into();
            event["object"]["kind"] = kind.into();
        }
        let encoded = self.form.event(&event);
        match self.fault {
            Some(Fault::CutAfter(count)) if count == self.sent => {
                self.chunk(&encoded[..encoded.len() / 2]).await?;
                self.flush().await?;
                return Err(cut());
            }
            Some(Fault::GarbageAfter(count)) if count == self.sent => {
                self.sent += 1;
                return self.chunk(&self.form.garbage()).await;
            }
            Some(Fault::StaleBookmarkAfter(count)) if count == self.sent => {
                self.chunk(&self.form.event(&stale_bookmark(&event))).await?;
            }
            _ => {}
        }
        self.sent += 1;
        if self.fault == Some(Fault::Slow) {
            for byte in &encoded {
                self.chunk(&[*byte]).await?;
                self.flush().await?;
                tokio::task::yield_now().await;
            }
            return Ok(());
        }
        self.chunk(&encoded).await
    }

    /// Ends the answer in good order.
    pub(super) async fn close(mut self) -> io::Result<()> {
        self.flush().await?;
        self.socket.write_all(b"0\r\n\r\n").await?;
        self.socket.flush().await
    }

    /// Sends everything that was written.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.written).await?;
        self.written.clear();
        self.socket.flush().await
    }

    /// Writes many events that [`append_chunk`] has encoded; faults do not touch them.
    pub(super) async fn chunks(&mut self, encoded: &[u8]) -> io::Result<()> {
        self.flush().await?;
        self.socket.write_all(encoded).await
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        append_chunk(&mut self.written, bytes);
        if self.written.len() >= PACKET { self.flush().await } else { Ok(()) }
    }
}

/// Appends one chunk of RFC 9112, section 7.1.
pub(super) fn append_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A bookmark with an earlier version, of the same kind as the event.
fn stale_bookmark(event: &Value) -> Value {
    let object = &event["object"];
    json!({"type": "BOOKMARK", "object": {
        "kind": object["kind"],
        "apiVersion": object["apiVersion"],
        "metadata": {"resourceVersion": "1"},
    }})
}
