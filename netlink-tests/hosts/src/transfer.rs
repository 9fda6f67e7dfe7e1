//! Long transfers over a connection that otherwise carries short lines.
//!
//! The client's first line is `send N` or `take N`; N bytes then go from the server or to it.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::deadline::{PATIENCE, stretched};

/// A transfer that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The server sends this number of bytes.
    Send(usize),
    /// The server takes this number of bytes, and answers then as usual. Some of them came with
    /// the line.
    Take { bytes: usize, came: usize },
}

impl Transfer {
    /// Parses the chunk that begins with the line.
    pub(crate) fn parse(chunk: &[u8]) -> Option<Self> {
        let end = chunk.iter().position(|byte| *byte == b'\n')?;
        let (word, count) = str::from_utf8(&chunk[..end]).ok()?.split_once(' ')?;
        let bytes = count.parse().ok()?;
        match word {
            "send" => Some(Self::Send(bytes)),
            "take" => Some(Self::Take { bytes, came: chunk.len() - end - 1 }),
            _ => None,
        }
    }

    /// Does the server's part; a connection that stands still ends it.
    pub(crate) fn serve(self, stream: &mut TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(stretched(PATIENCE)))?;
        stream.set_write_timeout(Some(stretched(PATIENCE)))?;
        match self {
            Self::Send(bytes) => stream.write_all(&vec![0; bytes]),
            Self::Take { bytes, came } => read_all(stream, bytes.saturating_sub(came)),
        }
    }
}

/// Asks the server for this number of bytes and reads them.
pub(crate) fn download(stream: &mut TcpStream, bytes: usize) -> io::Result<()> {
    ask(stream, "send", bytes)?;
    read_all(stream, bytes)
}

/// Sends this number of bytes to the server.
pub(crate) fn upload(stream: &mut TcpStream, bytes: usize) -> io::Result<()> {
    stream.set_write_timeout(Some(stretched(PATIENCE)))?;
    ask(stream, "take", bytes)?;
    stream.write_all(&vec![0; bytes])
}

/// Sends the line in one piece: the server parses the first chunk that it reads.
fn ask(stream: &mut TcpStream, word: &str, bytes: usize) -> io::Result<()> {
    stream.write_all(format!("{word} {bytes}\n").as_bytes())
}

fn read_all(stream: &mut TcpStream, bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len());
        match stream.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_transfers_are_some() {
        for (chunk, expected) in [
            ("send 100\n", Some(Transfer::Send(100))),
            ("take 7\nabc", Some(Transfer::Take { bytes: 7, came: 3 })),
            ("again\n", None),
            ("send 7", None),
            ("send x\n", None),
        ] {
            assert_eq!(Transfer::parse(chunk.as_bytes()), expected, "{chunk}");
        }
    }
}
