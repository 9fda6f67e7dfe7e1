//! Traces one real packet in the kernel.
//!
//! A rule in a table of its own sets `nftrace`. The socket owns the table, so the kernel removes it
//! however this process ends; after the time limit this process removes it.
//!
//! One packet is traced, the first of its connection: the rule deletes the element by which it
//! matched. The kernel derives trace ids from the memory of a packet and from its flow
//! (`nft_trace_init`), so later packets of a connection often have the id of the first.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use engine::ruleset::field::Field;
use engine::ruleset::phrase::{self, ElementChange, Phrases};
use inspect::explain::{self, Comparison, Explanation, Question, Start};
use nft::kernel::{Kernel, Nftables, Tracer};
use nft::{
    BaseChain, Chain, Element, Expression, Family, HookPoint, Operation, Rule, Set, SetFlags,
    Table, TableFlags, TableRef, TraceEvent, Transaction, Type, Value,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value as Json, json};
use socket2::{Domain, Protocol, Socket, Type as SocketType};

use super::clock::now;
use super::failure::Failure;
use super::output::warn;

/// Longest gap between two steps; the steps follow each other at once.
const STEP_GAP: Duration = Duration::from_millis(300);

/// Traces a packet of the question and compares it with the prediction.
///
/// # Errors
/// The table cannot be created, or no packet arrives within `limit`.
pub(super) fn compare(
    explanation: &Explanation,
    question: &Question,
    limit: Duration,
) -> Result<Comparison, Failure> {
    if explanation.is_handed_on() {
        let why = "--trace: this node hands the packet on before the hook where it is traced";
        return Err(Failure::new(why));
    }
    if explanation.start == Start::Prerouting {
        let packet = &explanation.packet;
        let to = SocketAddr::new(packet.destination, packet.port);
        // The process cannot send it: it comes from another host or pod.
        let (seconds, from) = (limit.as_secs(), packet.source);
        let protocol = explanation.protocol();
        warn(&format_args!(
            "waiting {seconds} s for a packet from {from} to {to}/{protocol}: send one\n"
        ));
    }
    let table = table(explanation);
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut tracer = Tracer::open().map_err(Failure::new)?;
    kernel.commit(&setup(&table, explanation)).map_err(Failure::new)?;
    let events = trace(&mut tracer, explanation, question, limit);
    // Without this the kernel removes the table when its owner is closed.
    let removed =
        kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table.clone())] });
    let events = events.map_err(Failure::new)?;
    removed.map_err(Failure::new)?;
    if events.is_empty() {
        return Err(Failure::new(format!(
            "--trace: no such packet within {} s{}",
            limit.as_secs(),
            match explanation.start {
                Start::Prerouting => "; send one, or use --trace-time for more time",
                Start::Output => "",
            }
        )));
    }
    Ok(explain::compare(&explanation.prediction, &events, &table))
}

/// Returns the comparison as JSON.
pub(super) fn json(comparison: &Comparison) -> Json {
    let lines = comparison.lines.iter().map(|line| {
        json!({
            "table": line.place.table.to_string(),
            "chain": line.place.chain,
            "handle": line.handle,
            "rule": line.text,
            "predicted": line.predicted,
            "traced": line.traced,
        })
    });
    json!({
        "rules": lines.collect::<Vec<_>>(),
        "difference": comparison.difference(),
    })
}

fn table(explanation: &Explanation) -> TableRef {
    let name = format!("deltaproxy-trace-{}", std::process::id());
    TableRef::new(explanation.packet.family(), name)
}

/// Builds a table whose single rule traces the first packet with the addresses, protocol and port
/// of the question.
fn setup(table: &TableRef, explanation: &Explanation) -> Transaction {
    let packet = &explanation.packet;
    let address = match packet.family() {
        Family::Ip => Type::Ipv4Addr,
        Family::Ip6 => Type::Ipv6Addr,
    };
    let set = Arc::new(Set {
        name: "packets".into(),
        key: vec![address, address, Type::InetProto, Type::InetService],
        flags: SetFlags { dynamic: true, ..SetFlags::default() },
        size: Some(1),
        ..Set::default()
    });
    let value = Value::new().ip(packet.source).ip(packet.destination);
    let element = Element::new(value.proto(packet.protocol).port(packet.port));
    let point = match explanation.start {
        Start::Prerouting => HookPoint::Prerouting,
        Start::Output => HookPoint::Output,
    };
    let chain = Chain::at_hook("trace", BaseChain::new("filter", point, FIRST_PRIORITY));
    let expressions = expressions(packet.family(), packet.protocol);
    let rule = Rule { chain: "trace".into(), expressions, comment: None };
    let made = Table {
        flags: TableFlags { owner: true, persist: false },
        comment: Some("traces one packet for deltaproxy explain".to_owned()),
        ..Table::new(table.family, table.name.clone())
    };
    Transaction {
        operations: vec![
            Operation::AddTable(made),
            Operation::AddSet(table.clone(), Arc::clone(&set)),
            Operation::AddElements(table.clone(), set, [element].into()),
            Operation::AddChain(table.clone(), chain),
            Operation::AddRule(table.clone(), rule),
        ],
    }
}

/// Returns a rule that traces one packet and forgets its key.
fn expressions(family: Family, protocol: u8) -> Vec<Expression> {
    const SET: &str = "packets";
    let phrases = Phrases(family);
    let key = [Field::Saddr, Field::Daddr, Field::L4Proto, Field::Dport];
    // The chain is before conntrack, so a connection that began before cannot be recognized
    // otherwise. UDP has no first packet by its bytes.
    let begins = match protocol {
        TCP => phrase::begins_tcp(),
        SCTP => phrase::begins_sctp(),
        _ => Vec::new(),
    };
    let forget = phrases.change_element(ElementChange::Delete, SET, &key, None);
    [phrases.in_set(&key, SET), begins, phrase::trace(), forget].concat()
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Before the chains of all other programs.
const FIRST_PRIORITY: i32 = -500;

/// Returns the steps of the first traced packet.
fn trace(
    tracer: &mut Tracer,
    explanation: &Explanation,
    question: &Question,
    limit: Duration,
) -> io::Result<Vec<TraceEvent>> {
    let deadline = now() + limit;
    let sent = match explanation.start {
        Start::Output => {
            Some(send(explanation, question).map_err(|error| unsent(explanation, &error))?)
        }
        Start::Prerouting => None,
    };
    let mut events: Vec<TraceEvent> = Vec::new();
    loop {
        let left =
            if events.is_empty() { deadline.saturating_duration_since(now()) } else { STEP_GAP };
        let is_over = left.is_zero() || !wait(tracer, left)?;
        if is_over {
            drop(sent);
            return Ok(events);
        }
        let id = events.first().map(|event| event.id);
        let news = tracer.take()?;
        let id = id.or_else(|| ours(&news, explanation));
        events.extend(news.into_iter().filter(|event| Some(event.id) == id));
    }
}

/// Returns the id of the packet that our rule traced; other programs may trace too.
fn ours(events: &[TraceEvent], explanation: &Explanation) -> Option<u32> {
    let table = table(explanation);
    events.iter().find(|event| event.table == table).map(|event| event.id)
}

fn wait(tracer: &Tracer, time: Duration) -> io::Result<bool> {
    let mut sockets = [PollFd::new(tracer.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    match poll(&mut sockets, time) {
        Err(Errno::EINTR) => Ok(true),
        ready => Ok(ready? > 0),
    }
}

/// Adds the destination to an error of [`send`].
fn unsent(explanation: &Explanation, error: &io::Error) -> io::Error {
    let packet = &explanation.packet;
    let to = SocketAddr::new(packet.destination, packet.port);
    io::Error::new(error.kind(), format!("--trace: cannot send a packet to {to}: {error}"))
}

/// Sends a datagram, or starts a connection without waiting for it. Returns the socket, or `None` if
/// the packet was refused after it was traced.
fn send(explanation: &Explanation, question: &Question) -> io::Result<Option<Socket>> {
    let packet = &explanation.packet;
    let (kind, protocol) = match packet.protocol {
        TCP => (SocketType::STREAM, Protocol::TCP),
        UDP => (SocketType::DGRAM, Protocol::UDP),
        _ => (SocketType::STREAM, Protocol::SCTP),
    };
    let domain = if packet.destination.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if let Some((address, port)) = question.from {
        socket.bind(&SocketAddr::new(address, port.unwrap_or_default()).into())?;
    }
    let to = SocketAddr::new(packet.destination, packet.port);
    let began = socket.connect(&to.into());
    let sent = if kind == SocketType::DGRAM {
        began.and_then(|()| socket.send(b"?").map(drop))
    } else {
        began
    };
    match sent.as_ref().map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
        Ok(()) | Err(Some(Errno::EINPROGRESS)) => Ok(Some(socket)),
        // EPERM: the packet was traced before a rule dropped it.
        Err(Some(Errno::EPERM | Errno::ECONNREFUSED)) => Ok(None),
        Err(_) => sent.map(|()| None),
    }
}
