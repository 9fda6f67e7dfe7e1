//! The two endpoints: listeners of this process that answer with their identity and the time.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::error::ProbeError;
use super::settings::Protocol;

/// One of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The first endpoint of the EndpointSlice.
    A,
    /// The other one.
    B,
}

impl Which {
    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Returns the index in arrays.
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Length of an answer in bytes.
pub(super) const ANSWER: usize = 9;

/// Encodes the answer of an endpoint that was reached at this time after the start of the run.
fn answer(which: Which, at: Duration) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    answer[0] = if which == Which::A { b'A' } else { b'B' };
    let nanoseconds = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
    answer[1..].copy_from_slice(&nanoseconds.to_be_bytes());
    answer
}

/// Decodes an answer; `None` if it is not from an endpoint of the probe.
pub(super) fn read(answer: &[u8]) -> Option<(Which, Duration)> {
    let (letter, at) = answer.split_first()?;
    let which = match letter {
        b'A' => Which::A,
        b'B' => Which::B,
        _ => return None,
    };
    Some((which, Duration::from_nanos(u64::from_be_bytes(at.try_into().ok()?))))
}

/// Opens both endpoints at free ports of the address, until the process ends. Times in answers
/// count from `base`.
///
/// # Errors
/// The address is not usable.
pub(super) fn open(
    address: IpAddr,
    protocol: Protocol,
    base: Instant,
) -> Result<[SocketAddr; 2], ProbeError> {
    let failed = |error| ProbeError::Listen { address: (address, 0).into(), error };
    let open = |which| match protocol {
        Protocol::Tcp => {
            let listener = TcpListener::bind((address, 0))?;
            let local = listener.local_addr();
            spawn(move || serve_tcp(&listener, which, base))?;
            local
        }
        Protocol::Udp => {
            let socket = UdpSocket::bind((address, 0))?;
            let local = socket.local_addr();
            spawn(move || serve_udp(&socket, which, base))?;
            local
        }
    };
    Ok([open(Which::A).map_err(failed)?, open(Which::B).map_err(failed)?])
}

fn spawn(serve: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name("endpoint".into()).spawn(serve).map(drop)
}

fn serve_tcp(listener: &TcpListener, which: Which, base: Instant) {
    loop {
        match listener.accept() {
            // The peer may have closed the connection.
            Ok((mut stream, _)) => drop(stream.write_all(&answer(which, base.elapsed()))),
            // Descriptors may be exhausted for a moment.
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn serve_udp(socket: &UdpSocket, which: Which, base: Instant) {
    let mut buffer = [0; ANSWER];
    loop {
        // Errors belong to earlier answers: the peer has closed its socket.
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&answer(which, base.elapsed()), from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_endpoint_and_the_time() {
        let at = Duration::from_micros(1_234_567);
        for which in [Which::A, Which::B] {
            assert_eq!(read(&answer(which, at)), Some((which, at)));
        }
        assert_eq!(read(b"HTTP/1.1 "), None);
        assert_eq!(read(b"A"), None);
        assert_eq!(read(b""), None);
    }
}
