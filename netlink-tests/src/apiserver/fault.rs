//! Faults of the server, and the requests that they apply to.

use super::kind::Kind;

/// A faulty answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this HTTP status and a Status object.
    Status(u16, &'static str),
    /// Answers 429 in plain text and asks to wait for this number of seconds, as priority and fairness
    /// does.
    Busy(u32),
    /// Answers with this file of `traces`, to the byte.
    Trace(&'static str),
    /// Opens the watch, sends an ERROR event with this code, and ends it in good order.
    ErrorEvent(u16, &'static str),
    /// Breaks the connection in the middle of the event after this many; a list, in its middle.
    CutAfter(usize),
    /// Sends byte by byte.
    Slow,
    /// Sends a line that is not JSON in place of the event after this many; or of the whole list.
    GarbageAfter(usize),
    /// Sends objects of this version and kind in place of the requested ones; a list has none.
    OtherKind(&'static str, &'static str),
    /// Sends objects of 1 MiB, up to 2 GiB.
    Endless,
    /// Answers a list without objects, in good order.
    Empty,
    /// Sends a bookmark of version 1 after this many events, and continues.
    StaleBookmarkAfter(usize),
    /// Ends the watch in good order, without an event.
    EndAtOnce,
    /// Sends the head of an answer and nothing more.
    Silence,
    /// Reads the request and sends nothing, as a stopped process does.
    NoAnswer,
}

/// The requests that a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Lists.
    List,
    /// Lists of one object, for their version.
    Check,
    /// Watches without initial events.
    Watch,
    /// Watches with `sendInitialEvents=true`.
    StreamingList,
    /// All of them.
    Any,
}

/// The planned faults.
#[derive(Debug, Default)]
pub(super) struct Plan(Vec<Planned>);

#[derive(Debug)]
struct Planned {
    kind: Kind,
    on: On,
    fault: Fault,
    times: usize,
}

impl Plan {
    pub(super) fn add(&mut self, kind: Kind, on: On, fault: Fault, times: usize) {
        self.0.push(Planned { kind, on, fault, times });
    }

    /// The fault for a request, used up by it.
    pub(super) fn take(&mut self, kind: Kind, on: On) -> Option<Fault> {
        let planned = self.0.iter_mut().find(|planned| {
            planned.times > 0 && planned.kind == kind && (planned.on == on || planned.on == On::Any)
        })?;
        planned.times -= 1;
        Some(planned.fault.clone())
    }
}
