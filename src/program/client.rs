//! Requests to a daemon, at its socket in this network namespace or at its metrics port.

use std::error::Error;
use std::time::Duration;
use std::{io, panic, thread};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Most bytes of an answer.
const LENGTH: usize = 16 << 20;

/// Most characters of an answer that is shown.
const LINE: usize = 200;

/// Error of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// Nothing listens, or the connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer ends too early, or is that of another program.
    #[error("its answer is not complete, or of another version or program: {0}{cause}", cause = cause(.0))]
    Http(#[from] hyper::Error),
    /// The body is incomplete or too long.
    #[error("its answer cannot be read: {0}")]
    Body(Box<dyn Error + Send + Sync>),
    /// Another status than 200, with the first line of the answer.
    #[error("{path} is answered with {status}{}", reason(*status, why))]
    Refused { path: &'static str, status: StatusCode, why: String },
    /// A document of another form.
    #[error("its answer is no {0}: another program has the name")]
    Foreign(&'static str),
    /// No JSON document of the expected form.
    #[error("its answer cannot be parsed: {0}")]
    Document(#[from] serde_json::Error),
    /// No answer within the limit.
    #[error("there is no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

fn reason(status: StatusCode, why: &str) -> String {
    match (status, why) {
        (StatusCode::NOT_FOUND, _) => ", so it is of another version or program".to_owned(),
        (_, "") => String::new(),
        (_, why) => format!(": {why}"),
    }
}

/// Formats what caused an error of the library, whose own text does not name it.
fn cause(error: &hyper::Error) -> String {
    error.source().map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Awaits answers within a time limit, in a thread of its own: that of the caller may be one of a
/// runtime, which must not wait.
pub(super) fn within<T: Send>(
    limit: Duration,
    answers: impl Future<Output = Result<T, AnswerError>> + Send,
) -> Result<T, AnswerError> {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answered = runtime.block_on(async { timeout(limit, answers).await });
        answered.unwrap_or(Err(AnswerError::Silent(limit)))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, wait)?;
        thread.join().unwrap_or_else(|it| panic::resume_unwind(it))
    })
}

/// Sends a request, and returns the body of its answer.
pub(super) async fn get<S>(stream: S, path: &'static str) -> Result<Bytes, AnswerError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = Uri::from_static(path);
    // Needs no name of a host, and the server closes the connection.
    *request.version_mut() = Version::HTTP_10;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LENGTH).collect().await;
    let body = body.map_err(AnswerError::Body)?.to_bytes();
    if status != StatusCode::OK {
        let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let why = String::from_utf8_lossy(line.trim_ascii_end()).chars().take(LINE).collect();
        return Err(AnswerError::Refused { path, status, why });
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Returns what a request gets from a server that does this with the other end.
    fn asked(limit: Duration, serve: impl FnOnce(UnixStream) + Send) -> Result<Bytes, String> {
        let (server, client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let get = async { get(tokio::net::UnixStream::from_std(client)?, "/status.json").await };
        thread::scope(|scope| {
            scope.spawn(|| serve(server));
            within(limit, get).map_err(|error| error.to_string())
        })
    }

    /// Returns what a request gets from a server that reads it, sends `answer` and closes.
    fn answered(answer: &[u8]) -> Result<Bytes, String> {
        asked(SOON, |mut server| {
            let _ = server.read(&mut [0; 1024]).unwrap();
            // The client closes the connection at the limit.
            let _ = server.write_all(answer);
        })
    }

    #[test]
    fn an_answer_is_used_only_whole_and_with_status_200() {
        let whole = b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(answered(whole), Ok(Bytes::from_static(b"{\"a\":1}")));
        for length in 0..whole.len() {
            let error = answered(&whole[..length]).unwrap_err();
            assert!(error.starts_with("its answer "), "{length}: {error}");
        }
        let error = answered(b"HTTP/1.0 403 Forbidden\r\ncontent-length: 6\r\n\r\nroot\r\n");
        let expected = "/status.json is answered with 403 Forbidden: root";
        assert_eq!(error, Err(expected.to_owned()));
        let long = "x".repeat(LENGTH / 2);
        let error = answered(format!("HTTP/1.0 500 Failed\r\n\r\n{long}").as_bytes());
        assert!(error.unwrap_err().len() < 300);
        let error = answered(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        let expected =
            "/status.json is answered with 404 Not Found, so it is of another version or program";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[test]
    fn other_programs_are_no_daemon() {
        let expected = "its answer is not complete, or of another version or program: ";
        for answer in ["SSH-2.0-OpenSSH_9.9\r\n", r#"{"version":"0.1.0","configuration":{}}"#] {
            let error = answered(answer.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            // An early daemon answered without a question.
            let error = asked(SOON, |mut server| server.write_all(answer.as_bytes()).unwrap());
            assert!(error.clone().unwrap_err().starts_with(expected), "{error:?}");
        }
    }

    #[test]
    fn an_answer_has_a_limit() {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", LENGTH + 1);
        let error = answered((head + &" ".repeat(LENGTH + 1)).as_bytes());
        let expected = "its answer cannot be read: length limit exceeded";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[test]
    fn silence_and_an_answer_that_never_ends_are_given_up() {
        let limit = Duration::from_millis(50);
        let silent = asked(limit, |mut server| {
            // Until the client has closed the connection.
            while server.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {}
        });
        let endless = asked(limit, |mut server| {
            let _ = server.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
            while server.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let expected = Err("there is no answer within 0 s".to_owned());
        assert_eq!([silent, endless], [expected.clone(), expected]);
    }
}
