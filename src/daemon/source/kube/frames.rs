//! Splits the body of a watch into its events.
//!
//! Memory is bounded by one event of [`LONGEST`] bytes and one read of the connection.

use std::error::Error as StdError;
use std::io;

use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;

use super::format::Format;

/// Longest event in bytes. An API server stores no object larger than etcd's limit of a request,
/// 1.5 MiB by default; as JSON it is a few times as long.
pub(super) const LONGEST: usize = 32 << 20;

/// Bytes of the length before each event in protobuf (framer.go of apimachinery).
const HEAD: usize = 4;

/// Why no further event can be read.
#[derive(Debug)]
pub(super) enum FrameError {
    /// An event is longer than [`LONGEST`]; contains its length, as far as known.
    TooLong(usize),
    /// The connection broke.
    Broken(kube::Error),
}

/// The events of an open watch.
pub(super) struct Frames<B = Body> {
    format: Format,
    body: B,
    /// Unread that was read: it begins with the next event.
    data: Unread,
}

/// Unread of the body, in one piece. A read that contains whole events is not copied.
#[derive(Default)]
struct Unread {
    /// The rest of the last read.
    read: Bytes,
    /// The beginning of an event that continues in `read`.
    begun: Vec<u8>,
}

impl<B: HttpBody<Data = Bytes, Error = kube::Error> + Unpin> Frames<B> {
    pub(super) fn new(format: Format, body: B) -> Self {
        Self { format, body, data: Unread::default() }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Returns the next event without its length or line end; `None` at the end of the watch. The
    /// beginning of an event before a normal end is dropped: the watch resumes before it.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) if is_early_end(&error) => return Ok(None),
                Some(Err(error)) => {
                    return Err(FrameError::Broken(kube::Error::ReadEvents(io::Error::other(
                        error,
                    ))));
                }
                // A complete event may lack its line end.
                None if self.format == Format::Json && self.data.len() > 0 => {
                    return Ok(Some(self.data.split(self.data.len())));
                }
                None => return Ok(None),
            };
            if let Ok(data) = frame.into_data() {
                self.data.add(data);
            }
        }
    }

    /// Returns the next event if all of it was read.
    fn take(&mut self) -> Result<Option<Bytes>, FrameError> {
        match self.format {
            Format::Json => self.take_line(),
            Format::Protobuf => self.take_message(),
        }
    }

    fn take_line(&mut self) -> Result<Option<Bytes>, FrameError> {
        // What has begun contains no line end.
        match memchr::memchr(b'\n', &self.data.read) {
            Some(at) => {
                let line = self.data.split(self.data.begun.len() + at);
                self.data.skip(1);
                Ok(Some(line))
            }
            None if self.data.len() > LONGEST => Err(FrameError::TooLong(self.data.len())),
            None => {
                self.data.begin();
                Ok(None)
            }
        }
    }

    fn take_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(head) = self.data.head() else {
            self.data.begin();
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(FrameError::TooLong(length));
        }
        if self.data.len() < HEAD + length {
            self.data.begin();
            return Ok(None);
        }
        self.data.skip(HEAD);
        Ok(Some(self.data.split(length)))
    }
}

impl Unread {
    fn len(&self) -> usize {
        self.begun.len() + self.read.len()
    }

    /// Adds a read, after all of the last one was split off or begun.
    fn add(&mut self, read: Bytes) {
        self.read = read;
    }

    /// Keeps the rest of the read as the beginning of an event.
    fn begin(&mut self) {
        self.begun.extend_from_slice(&self.read);
        self.read = Bytes::new();
    }

    /// Returns the first bytes; `None` if there are fewer.
    fn head(&self) -> Option<[u8; HEAD]> {
        let mut bytes = self.begun.iter().chain(&self.read[..]);
        let mut head = [0; HEAD];
        for byte in &mut head {
            *byte = *bytes.next()?;
        }
        Some(head)
    }

    /// Removes and returns the first `length` bytes, which exist.
    fn split(&mut self, length: usize) -> Bytes {
        if self.begun.is_empty() {
            return self.read.split_to(length);
        }
        let mut begun = std::mem::take(&mut self.begun);
        if length < begun.len() {
            self.begun = begun.split_off(length);
        } else {
            begun.extend_from_slice(&self.read.split_to(length - begun.len()));
        }
        begun.into()
    }

    fn skip(&mut self, length: usize) {
        drop(self.split(length));
    }
}

/// Returns whether a connection ended in the middle of a chunk, which servers and proxies do to
/// watches after some minutes.
fn is_early_end(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            || error.to_string().contains("unexpected EOF during chunk")
        {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// Returns the events of a body that arrives in pieces of `size` bytes, and the length of an event
    /// that is too long.
    async fn events(format: Format, body: &[u8], size: usize) -> (Vec<Vec<u8>>, Option<usize>) {
        let pieces: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let pieces = stream::iter(pieces).map(|piece| Ok::<_, kube::Error>(Frame::data(piece)));
        let body = StreamBody::new(pieces);
        let (mut frames, mut found) = (Frames::new(format, body), Vec::new());
        loop {
            match frames.next().await {
                Ok(Some(event)) => found.push(event.to_vec()),
                Ok(None) => return (found, None),
                Err(FrameError::TooLong(length)) => return (found, Some(length)),
                Err(FrameError::Broken(error)) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn events_are_the_same_in_pieces_of_any_size() {
        let messages = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d";
        for size in 1..=messages.len() {
            let (found, _) = events(Format::Protobuf, messages, size).await;
            assert_eq!(found, [&b"abc"[..], b"", b"d"], "{size}");
        }
        let lines = b"abc\n\nd\nlast";
        for size in 1..=lines.len() {
            let (found, _) = events(Format::Json, lines, size).await;
            assert_eq!(found, [&b"abc"[..], b"", b"d", b"last"], "{size}");
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_message_before_the_end_is_dropped() {
        for end in [1, 3, 4, 6] {
            let body = [&b"\0\0\0\x01x"[..], &b"\0\0\0\x03abc"[..end]].concat();
            assert_eq!(events(Format::Protobuf, &body, 2).await, (vec![b"x".to_vec()], None));
        }
    }

    #[tokio::test]
    async fn an_event_that_is_too_long_is_an_error_before_it_is_stored() {
        let head = (33_u32 << 20).to_be_bytes();
        assert_eq!(events(Format::Protobuf, &head, 4).await, (vec![], Some(33 << 20)));
        let line = vec![b'x'; LONGEST + 2];
        let (found, length) = events(Format::Json, &line, 1 << 20).await;
        assert!(found.is_empty() && length.is_some_and(|length| length > LONGEST), "{length:?}");
    }
}
