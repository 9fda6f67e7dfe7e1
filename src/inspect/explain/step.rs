//! Results: the steps of the packet and its outcomes.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, SocketAddr};

use nft::expression::Data;
use nft::{TableRef, Verdict};

/// Outcomes and steps of a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Possible outcomes, most likely first.
    pub outcomes: Vec<PossibleFate>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Chains whose order decides and is not known.
    pub unordered: Vec<Vec<ChainId>>,
    /// Steps if chains whose order is not known come in the reverse order.
    pub steps_in_other_order: Vec<Step>,
}

impl Prediction {
    /// Returns the rules that the packet reached.
    pub(super) fn rules(&self) -> impl Iterator<Item = &RuleStep> {
        self.steps.iter().filter_map(Step::rule)
    }
}

impl Step {
    pub(super) fn rule(&self) -> Option<&RuleStep> {
        if let Self::Rule(rule) = self { Some(rule) } else { None }
    }
}

/// A possible outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct PossibleFate {
    /// Fate of the packet.
    pub fate: Fate,
    /// Share of packets, from 0 to 1.
    pub share: f64,
    /// False if something unknown decides; then the share is an upper bound.
    pub is_certain: bool,
}

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The packet is sent to this address.
    Sent {
        /// Destination after translation.
        to: SocketAddr,
        /// The destination was translated.
        translated: bool,
        /// The source was translated.
        masqueraded: bool,
        /// Output interface; `None` if the packet stays on this node.
        interface: Option<String>,
    },
    /// A rule sends the packet by a device, before conntrack and routing.
    Handed(Hop),
    /// The sender receives an error.
    Refused(ChainId),
    /// The packet is dropped.
    Dropped(ChainId),
    /// Routing drops the packet; the text is the reason.
    NoRoute(String),
    /// The packet reached an expression that may have ended the evaluation.
    Unknown(ChainId),
}

/// The way of a packet that a rule sends by a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The neighbour that gets it; `None` if its hardware addresses stay as they are.
    pub to: Option<IpAddr>,
    /// The hardware address of the neighbour, if the kernel knows it.
    pub hardware_address: Option<[u8; 6]>,
    /// Name of the device.
    pub interface: String,
}

/// A chain in a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainId {
    /// The table.
    pub table: TableRef,
    /// Name of the chain.
    pub chain: String,
}

impl ChainId {
    pub(super) fn new(table: &TableRef, chain: &str) -> Self {
        Self { table: table.clone(), chain: chain.to_owned() }
    }
}

impl Display for ChainId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "table {} chain {}", self.table, self.chain)
    }
}

/// A step of the packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The packet reaches a hook.
    Hook {
        /// `prerouting` and so on.
        name: &'static str,
        /// Share of packets that reach it.
        share: f64,
    },
    /// The packet enters a base chain.
    Chain {
        /// The chain.
        place: ChainId,
        /// Its type.
        kind: String,
        /// Its priority.
        priority: i32,
        /// The policy is drop.
        drops: bool,
    },
    /// The packet reaches a rule.
    Rule(RuleStep),
    /// A routing decision.
    Routed {
        /// The decision.
        what: String,
        /// Share of packets with this decision.
        share: f64,
    },
}

/// Evaluation of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleStep {
    /// Position of the rule.
    pub place: ChainId,
    /// Handle of the rule.
    pub handle: u64,
    /// The rule as nft(8) writes it.
    pub text: String,
    /// Share of packets that reach the rule.
    pub reached: f64,
    /// Share of packets that match it to its end.
    pub matched: f64,
    /// False if something unknown decides whether it matches.
    pub is_certain: bool,
    /// Notable events.
    pub events: Vec<Event>,
    /// Number of further events, which are left out.
    pub more_events: usize,
}

/// A notable event at a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A set or map has the key.
    Found {
        /// Name of the set.
        set: String,
        /// The key.
        key: Vec<u8>,
        /// Data of a map's element.
        data: Option<Data>,
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
    /// A lookup in a map with a random number.
    Drawn {
        /// Name of the map.
        set: String,
        /// Number of possible random numbers.
        of: u32,
        /// How many of them the map contains.
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
    /// The packet is sent by a device.
    Handed(Hop),
    /// Verdict of the rule.
    Verdict(Verdict),
    /// The packet is rejected.
    Reject,
    /// An unknown value.
    Unknown(String),
}

/// Most events of one rule that are kept.
const MOST_EVENTS: usize = 12;

impl RuleStep {
    /// Adds an event, unless it is present.
    pub(super) fn note(&mut self, event: Event) {
        if self.events.contains(&event) {
            return;
        }
        if self.events.len() < MOST_EVENTS {
            self.events.push(event)
        } else {
            self.more_events += 1
        }
    }
}

/// Returns the data of an element if they are no verdict.
pub(super) fn value(data: Option<&Data>) -> Option<&[u8]> {
    if let Some(Data::Value(data)) = data { Some(data) } else { None }
}
