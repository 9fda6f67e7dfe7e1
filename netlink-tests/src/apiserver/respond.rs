//! Answers requests: lists, pages, watches and streaming lists, in good and in bad ways.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::fault::{Fault, On};
use super::form::Form;
use super::kind::Kind;
use super::request::Request;
use super::state::{Shared, State};
use super::stream::Events;
use super::target::Target;
use super::trace;

/// Answers the requests of one connection until either side ends it.
pub(super) async fn serve(socket: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let mut socket = BufReader::new(socket);
    while let Some(request) = Request::read(&mut socket).await {
        let fault = {
            let mut state = shared.lock();
            if state.is_authorized(&request) {
                request.kind.and_then(|kind| state.plan.take(kind, request.on))
            } else {
                Some(Fault::Status(401, "Unauthorized"))
            }
        };
        shared.record(&request);
        if answer(&mut socket, &shared, &request, fault).await.is_err() {
            return;
        }
    }
}

async fn answer(
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Shared,
    request: &Request,
    fault: Option<Fault>,
) -> io::Result<()> {
    let Some(kind) = request.kind.filter(|_| request.method == "GET") else {
        return single(socket, shared, request).await;
    };
    let verb = if request.lists() { "list" } else { "watch" };
    let refusal = Target::of(&request.path).and_then(|it| shared.lock().refusal(verb, &it));
    if let Some((code, text)) = refusal {
        return body(socket, code, &format!("{text}\n")).await;
    }
    let form = Form::of(request, shared.lock().has_only_json);
    match fault {
        Some(Fault::Status(code, message)) => status(socket, form, code, message).await,
        Some(Fault::Busy(seconds)) => busy(socket, seconds).await,
        Some(Fault::Trace(name)) => replay(socket, name).await,
        Some(Fault::NoAnswer) => std::future::pending().await,
        Some(Fault::Silence) => {
            Events::open(socket, form, None).await?;
            std::future::pending().await
        }
        Some(Fault::ErrorEvent(code, message)) => {
            let mut events = Events::open(socket, form, None).await?;
            events.event(&error_event(code, message)).await?;
            events.close().await
        }
        Some(Fault::Endless) => endless(socket, form, request, kind).await,
        Some(Fault::EndAtOnce) => Events::open(socket, form, None).await?.close().await,
        fault if request.lists() => list(socket, shared, (form, request), fault).await,
        fault => watch(socket, shared, (kind, form, request), fault).await,
    }
}

/// Answers what creates, changes, deletes or reads a single object.
async fn single(
    socket: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    request: &Request,
) -> io::Result<()> {
    if shared.lock().ignores(request) {
        return std::future::pending().await;
    }
    let (answer, version) = {
        let mut state = shared.lock();
        let answer = state.write(request).unwrap_or_else(|| state.other(request));
        (answer, state.store.version())
    };
    if request.method != "GET" {
        shared.changed.send_replace(version);
    }
    let (code, text) = answer;
    body(socket, code, &format!("{text}\n")).await
}

impl State {
    /// Answers a request that is not about an object of the store: a new Event, or nothing.
    fn other(&mut self, request: &Request) -> (u16, Value) {
        let missing = (404, "the server could not find the requested resource");
        let outcome = match request.method.as_str() {
            "POST" => self.add_event(&request.path, &request.posted),
            _ => Err(missing),
        };
        match outcome {
            Ok(()) => (201, request.posted.clone()),
            Err((code, message)) => (code, status_object(code, message)),
        }
    }
}

/// Sends a recorded answer with its own head; chunks are joined as the recording joined them.
async fn replay(socket: &mut (impl AsyncWrite + Unpin), name: &str) -> io::Result<()> {
    let (head, body) = trace::parts(name);
    let head = head
        .split("\r\n")
        .filter(|line| {
            !line.starts_with("Transfer-Encoding") && !line.starts_with("Content-Length")
        })
        .collect::<Vec<_>>()
        .join("\r\n");
    let length = body.len();
    let answer = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    socket.write_all(answer.as_bytes()).await?;
    socket.flush().await
}

async fn status(
    socket: &mut (impl AsyncWrite + Unpin),
    form: Form,
    code: u16,
    message: &str,
) -> io::Result<()> {
    send(socket, form, code, &form.body(&status_object(code, message))).await
}

/// Refuses a list of a version that the server does not have yet.
async fn too_large(
    socket: &mut (impl AsyncWrite + Unpin),
    form: Form,
    (asked, current): (u64, u64),
) -> io::Result<()> {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    status(socket, form, 504, &message).await
}

async fn busy(socket: &mut (impl AsyncWrite + Unpin), seconds: u32) -> io::Result<()> {
    let text = "Too many requests, please try again later.\n";
    let length = text.len();
    let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let answer = format!("{head}Retry-After: {seconds}\r\nContent-Length: {length}\r\n\r\n{text}");
    socket.write_all(answer.as_bytes()).await?;
    socket.flush().await
}

async fn body(socket: &mut (impl AsyncWrite + Unpin), code: u16, text: &str) -> io::Result<()> {
    send(socket, Form::Json, code, text.as_bytes()).await
}

async fn send(
    socket: &mut (impl AsyncWrite + Unpin),
    form: Form,
    code: u16,
    bytes: &[u8],
) -> io::Result<()> {
    let (media_type, length) = (form.media_type(), bytes.len());
    let head = format!(
        "HTTP/1.1 {code} Status\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(bytes).await?;
    socket.flush().await
}

async fn list(
    socket: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    (form, request): (Form, &Request),
    fault: Option<Fault>,
) -> io::Result<()> {
    let kind = request.kind.expect("the caller has looked");
    let least = request.parameter("resourceVersion");
    // The watch cache has no pages (`Cacher.GetList`).
    let limit = request.parameter("limit").parse().ok().filter(|_| least != "0");
    let (page, version) = {
        let store = &shared.lock().store;
        (store.page(kind, request.parameter("continue"), limit), store.version())
    };
    if let Some(least) = least.parse().ok().filter(|least| *least > version) {
        return too_large(socket, form, (least, version)).await;
    }
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(next) = page.next {
        metadata["continue"] = next.into();
    }
    let items: Vec<_> = page.items.into_iter().filter(|object| request.selects(object)).collect();
    let (version, name, items) = match fault {
        Some(Fault::OtherKind(version, name)) => (version, name, Vec::new()),
        Some(Fault::Empty) => (kind.api_version(), kind.name(), Vec::new()),
        _ => (kind.api_version(), kind.name(), items),
    };
    let list = json!({
        "kind": format!("{name}List"),
        "apiVersion": version,
        "metadata": metadata,
        "items": items,
    });
    let encoded = form.body(&list);
    match fault {
        Some(Fault::GarbageAfter(_)) => send(socket, form, 200, b"}garbage{\n").await,
        Some(Fault::CutAfter(_)) => {
            let (media_type, length) = (form.media_type(), encoded.len());
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).await?;
            socket.write_all(&encoded[..length / 2]).await?;
            socket.flush().await?;
            Err(io::Error::other("cut on purpose"))
        }
        _ => send(socket, form, 200, &encoded).await,
    }
}

/// Answers with a list that has no end, in a stream or in one answer of JSON.
async fn endless(
    socket: &mut (impl AsyncWrite + Unpin),
    form: Form,
    request: &Request,
    kind: Kind,
) -> io::Result<()> {
    const OBJECTS: usize = 2048;
    let filled = json!({"metadata": {
        "name": "filled", "namespace": "default", "resourceVersion": "7",
        "annotations": {"text": "x".repeat(1 << 20)},
    }});
    let mut object = filled.clone();
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.name().into();
    let (form, first, repeated) = if request.lists() {
        let head = format!(
            r#"{{"apiVersion":"{}","kind":"{}List","metadata":{{"resourceVersion":"7"}},"items":["#,
            kind.api_version(),
            kind.name()
        );
        (Form::Json, head.into_bytes(), format!("{filled},").into_bytes())
    } else {
        (form, Vec::new(), form.event(&json!({"type": "ADDED", "object": object})))
    };
    let media_type = form.media_type();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type};stream=watch\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(&first).await?;
    for _ in 0..OBJECTS {
        socket.write_all(&repeated).await?;
    }
    Err(io::Error::other("it ends on purpose"))
}

async fn watch(
    socket: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    (kind, form, request): (Kind, Form, &Request),
    fault: Option<Fault>,
) -> io::Result<()> {
    let mut changes = shared.changed.subscribe();
    let asked = request.parameter("resourceVersion").parse::<u64>().unwrap_or(0);
    let initial = request.on == On::StreamingList || asked == 0;
    let current = shared.lock().store.version();
    if initial && asked > current {
        return too_large(socket, form, (asked, current)).await;
    }
    let (mut events, mut chunks) = (Vec::new(), None);
    let (mut version, expired) = {
        let store = &mut shared.lock().store;
        match (initial, &fault) {
            (true, Some(Fault::Empty)) => {}
            (true, _) if request.compares() => {
                events = store.initial_events(kind, |object| request.selects(object));
            }
            (true, Some(_)) => events = store.initial_events(kind, |_| true),
            (true, None) => chunks = Some(store.initial_chunks(kind, form)),
            (false, _) => {}
        }
        let version = if initial { store.version() } else { asked };
        (version, !initial && store.is_expired(asked))
    };
    let mut answer = Events::open(socket, form, fault).await?;
    if expired {
        answer.event(&error_event(410, &format!("too old resource version: {asked}"))).await?;
        return answer.close().await;
    }
    for event in &events {
        answer.write(event).await?;
    }
    answer.flush().await?;
    if let Some(chunks) = chunks {
        answer.chunks(&chunks).await?;
    }
    if request.on == On::StreamingList {
        answer.event(&end_of_initial_events(kind, version)).await?;
    }
    let seconds = request.parameter("timeoutSeconds").parse().unwrap_or(300);
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    loop {
        let (events, now) = {
            let store = &shared.lock().store;
            (store.events_after(kind, version), store.version())
        };
        let mut is_sent = false;
        for event in events.iter().filter_map(|event| request.seen(event)) {
            answer.write(&event).await?;
            is_sent = true;
        }
        answer.flush().await?;
        if is_sent {
            shared.lock().sent_at = Some(tokio::time::Instant::now().into_std());
        }
        // After a restore a watch gets nothing until its version is reached.
        version = version.max(now);
        match tokio::time::timeout_at(end, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return answer.close().await,
        }
    }
}

fn end_of_initial_events(kind: Kind, version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {
        "kind": kind.name(),
        "apiVersion": kind.api_version(),
        "metadata": {
            "resourceVersion": version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }})
}

fn error_event(code: u16, message: &str) -> Value {
    json!({"type": "ERROR", "object": status_object(code, message)})
}

pub(super) fn status_object(code: u16, message: &str) -> Value {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        410 => "Expired",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}
