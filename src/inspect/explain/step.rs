//! What is found out: the steps of the packet and its outcomes.

use std::net::SocketAddr;

use super::rules::TableId;
use crate::nft::{ElementData, Verdict};

/// What is to be said of a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// What may become of it, the likeliest first.
    pub outcomes: Vec<Outcome>,
    /// What happens on the way, in order.
    pub steps: Vec<Step>,
}

/// What may become of the packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What becomes of it.
    pub fate: Fate,
    /// The share of packets, from 0 to 1.
    pub share: f64,
    /// False where something unknown decides; then the share is an upper limit.
    pub is_certain: bool,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It goes on to this address.
    Sent {
        /// Where to, after translation.
        to: SocketAddr,
        /// The destination was translated.
        translated: bool,
        /// The source was translated.
        masqueraded: bool,
        /// The interface that it leaves by; `None` if it stays on this node.
        interface: Option<String>,
    },
    /// The sender receives a refusal.
    Refused(Place),
    /// It disappears.
    Dropped(Place),
    /// Routing drops it; why.
    NoRoute(String),
    /// It came to an expression that may end its way.
    Unknown(Place),
}

/// A chain in a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The table.
    pub table: TableId,
    /// Name of the chain.
    pub chain: String,
}

/// Something that happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The packet comes to a hook.
    Hook {
        /// `prerouting` and so on.
        name: &'static str,
        /// The share of packets that come here.
        share: f64,
    },
    /// It enters a base chain.
    Chain {
        /// The chain.
        place: Place,
        /// Its type.
        kind: String,
        /// Its priority.
        priority: i32,
        /// The policy is drop.
        drops: bool,
    },
    /// It comes to a rule.
    Rule(RuleStep),
    /// Routing decides.
    Routed {
        /// What it decides.
        what: String,
        /// For which share of packets.
        share: f64,
    },
}

/// What happens at a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleStep {
    /// Where the rule is.
    pub place: Place,
    /// The kernel's number for the rule.
    pub handle: u64,
    /// The rule in nft's words.
    pub text: String,
    /// The share of packets that come to the rule.
    pub reached: f64,
    /// The share of packets that match it to its end.
    pub matched: f64,
    /// False where something unknown decides whether it matches.
    pub is_certain: bool,
    /// What is of note.
    pub events: Vec<Event>,
    /// Events that were left out because they are too many.
    pub more_events: usize,
}

/// Something of note at a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A set or map has the key.
    Found {
        /// Name of the set.
        set: String,
        /// The key.
        key: Vec<u8>,
        /// What a map returns.
        data: Option<ElementData>,
        /// The comment of the element.
        comment: Option<String>,
    },
    /// A set or map does not have the key.
    Missing {
        /// Name of the set.
        set: String,
        /// The key.
        key: Vec<u8>,
    },
    /// A number was drawn, and a map looked up with it.
    Drawn {
        /// Name of the map.
        set: String,
        /// How many numbers there are.
        of: u32,
        /// How many of them the map has.
        hits: u32,
    },
    /// The mark was changed.
    Mark {
        /// Before.
        from: u32,
        /// After.
        to: u32,
    },
    /// The destination was translated.
    Destination(SocketAddr),
    /// The source was translated.
    Source,
    /// The rule ended so.
    Verdict(Verdict),
    /// The packet is refused.
    Reject,
    /// Something is not known.
    Unknown(String),
}

/// Most events of one rule that are kept.
const MOST_EVENTS: usize = 12;

impl RuleStep {
    /// Notes an event once.
    pub(super) fn note(&mut self, event: Event) {
        if self.events.contains(&event) {
            return;
        }
        match self.events.len() < MOST_EVENTS {
            true => self.events.push(event),
            false => self.more_events += 1,
        }
    }
}
