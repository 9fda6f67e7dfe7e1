//! A client of the daemon's metrics port for `top`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use inspect::top::{Report, Scrape, Status};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of both answers.
const TIME: Duration = Duration::from_secs(2);

/// Most bytes of an answer. Both are usually below a megabyte.
const LENGTH: usize = 8 << 20;

/// Error of reading the report.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    /// Nothing listens, or the connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server does not speak HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The body is incomplete or too long.
    #[error("its answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The port belongs to another program.
    #[error("{0} is answered with {1}, so it is not the metrics port of deltaproxy")]
    Refused(&'static str, StatusCode),
    /// The port belongs to another program.
    #[error("/status.json cannot be read: {0}")]
    Document(#[from] serde_json::Error),
    /// No answer within the limit.
    #[error("there is no answer within {} s", TIME.as_secs())]
    Silent,
}

/// Reads the status and the metrics of the daemon at an address.
pub(super) async fn report(address: SocketAddr) -> Result<Report, ReportError> {
    timeout(TIME, report_at_any_time(address)).await.unwrap_or(Err(ReportError::Silent))
}

async fn report_at_any_time(address: SocketAddr) -> Result<Report, ReportError> {
    let status = Status::parse(&get(address, "/status.json").await?)?;
    let metrics = get(address, "/metrics").await?;
    Ok(Report { status, metrics: Scrape::parse(&String::from_utf8_lossy(&metrics)) })
}

/// The server closes the connection after each answer.
async fn get(address: SocketAddr, path: &'static str) -> Result<Bytes, ReportError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = hyper::Uri::from_static(path);
    if let Ok(host) = address.to_string().parse() {
        request.headers_mut().insert(HOST, host);
    }
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(ReportError::Refused(path, answer.status()));
    }
    let body = Limited::new(answer.into_body(), LENGTH).collect().await;
    connection.abort();
    Ok(body.map_err(ReportError::Body)?.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns the error for a server that sends `answer` and closes the connection.
    async fn error_of(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            // The client closes the connection at the limit.
            let _ = stream.write_all(answer.as_bytes());
        });
        let error = report_at_any_time(address).await.unwrap_err().to_string();
        server.join().unwrap();
        error
    }

    #[tokio::test]
    async fn other_programs_are_distinguished_from_a_daemon() {
        let error = error_of("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".into()).await;
        let expected = "/status.json is answered with 404 Not Found, so it is not the metrics port \
                        of deltaproxy";
        assert_eq!(error, expected);
        assert!(!error_of("SSH-2.0-OpenSSH_9.9\r\n".into()).await.is_empty());
        let html = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>";
        assert!(error_of(html.into()).await.starts_with("/status.json cannot be read"));
    }

    #[tokio::test]
    async fn an_answer_has_a_limit() {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", LENGTH + 1);
        let error = error_of(head + &" ".repeat(LENGTH + 1)).await;
        assert_eq!(error, "its answer cannot be read: length limit exceeded");
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(report(address).await.unwrap_err().to_string().contains("refused"));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = report(address).await.unwrap_err().to_string();
        assert_eq!(error, "there is no answer within 2 s");
    }
}
