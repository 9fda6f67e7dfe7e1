//! Explains the path of a packet by the rules in the kernel.
//!
//! ```text
//! Question --packet--> walk: hooks, base chains, chains, routing --steps, outcomes--> report
//!                        |
//!                      evaluate: one rule --key--> Facts: elements, routes
//! ```
//!
//! The evaluator is pure: rules and packet in, outcomes and steps out. [`Kernel`] reads the rules,
//! and each element by its key, so the cost does not depend on the number of services. Anything
//! unknown becomes a step, and makes outcomes uncertain.

mod direct;
mod direct_elements;
mod direct_words;
mod evaluate;
mod explanation;
mod field;
mod jhash;
mod json;
mod kernel;
mod lookup;
mod order;
mod packet;
mod percent;
mod registers;
mod report;
mod rules;
mod service;
mod sources;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod trace;
mod translate;
mod walk;
mod words;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

pub use direct::DirectReturn;
pub use direct_elements::DirectWay;
pub use explanation::{ClosedNodePort, Explanation, Summary};
pub use kernel::Kernel;
pub use packet::{Interface, Packet, Tracking};
pub use rules::{Facts, LookupResult, Rules, TableRules};
pub use service::Service;
pub use sources::SourceRanges;
pub use step::{ChainId, Event, Fate, Hop, PossibleFate, Prediction, RuleStep, Step};
pub use trace::{Comparison, Line, compare};
pub use walk::{Start, predict};

use engine::model::Protocol;
use engine::ruleset::{self, Frontend, TABLE};
use network::{Way, interface_index, interface_name};
use nft::kernel::{Generation, ReadError};
use nft::{Family, key};

/// The packet to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Destination address and port.
    pub to: SocketAddr,
    /// Transport protocol by its IANA number; `None` for each that has a service there.
    pub protocol: Option<u8>,
    /// Source address, and port if it matters.
    pub from: Option<(IpAddr, Option<u16>)>,
    /// Input interface.
    pub interface: Option<String>,
    /// Hook where the packet starts.
    pub start: Option<Start>,
}

/// Error of an explanation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rules cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A table of ours does not exist.
    #[error(
        "there is no table {family} {TABLE}: neither a daemon nor `apply` has made it in this \
         network namespace"
    )]
    NoTable {
        /// Family of the missing table.
        family: Family,
    },
    /// No interface has the name.
    #[error("--in-interface {0}: no interface of this network namespace has that name")]
    NoInterface(String),
    /// The source of the packet is not given.
    #[error("--hook prerouting: --from ADDRESS is needed, the source of a packet that comes in")]
    NoSource,
    /// The rules changed during every attempt to read them.
    #[error("the rules kept changing while they were read")]
    Changing,
}

/// Most reads of the rules if they change meanwhile.
const ATTEMPTS: usize = 10;

/// Explains a packet by the present rules of the kernel. Without a protocol, explains a packet of
/// each protocol that has a service at the destination, or one of TCP if none has.
///
/// # Errors
/// See [`Error`].
pub fn explain(kernel: &mut Kernel, question: &Question) -> Result<Vec<Explanation>, Error> {
    for _ in 0..ATTEMPTS {
        let generation = kernel.start()?;
        let explanations = explain_all(kernel, question, generation);
        if kernel.is_unchanged(generation)? {
            return explanations;
        }
    }
    Err(Error::Changing)
}

fn explain_all(
    kernel: &mut Kernel,
    question: &Question,
    generation: Generation,
) -> Result<Vec<Explanation>, Error> {
    if let Some(protocol) = question.protocol {
        return Ok(vec![explain_once(kernel, question, protocol, generation)?]);
    }
    let explain = |it: Protocol| explain_once(kernel, question, it.number(), generation);
    let explained: Result<Vec<_>, _> = Protocol::ALL.into_iter().map(explain).collect();
    let (mut served, others): (Vec<_>, Vec<_>) = explained?
        .into_iter()
        .partition(|it| it.summary().service.is_some() || it.closed_node_port.is_some());
    let note = match served.as_slice() {
        [] => "it is of TCP, as no protocol was given and none has a service there",
        [_] => "its protocol is the only one with a service there",
        [_, ..] => "each protocol with a service there is explained",
    };
    if served.is_empty() {
        served.extend(others.into_iter().take(1));
    }
    served.iter_mut().for_each(|it| it.notes.push(note.to_owned()));
    Ok(served)
}

fn explain_once(
    kernel: &mut Kernel,
    question: &Question,
    protocol: u8,
    generation: Generation,
) -> Result<Explanation, Error> {
    let family = Family::of(question.to.ip());
    let rules = kernel.rules(family, generation)?;
    let ours = ruleset::table(family);
    if !rules.tables.contains_key(&ours) {
        return Err(Error::NoTable { family });
    }
    let mut notes = vec!["it is the first packet of a new connection".to_owned()];
    let (packet, start) = packet(kernel, (question, protocol), &mut notes)?;
    let prediction = predict(&rules, kernel, packet.clone(), start);
    notes.extend(prediction.unordered.iter().map(|chains| {
        let chains: Vec<_> = chains.iter().map(ToString::to_string).collect();
        format!("the kernel does not tell which of these it calls first: {}", chains.join(", "))
    }));
    let others = kernel.other_chains(&packet.input)?;
    notes.extend(others.iter().map(|chain| format!("{chain} is not evaluated")));
    notes.extend(kernel.legacy_tables(family));
    let at_ingress =
        |step: &Step| matches!(step, Step::Hook { name, .. } if *name == walk::INGRESS);
    notes.extend(prediction.steps.iter().any(at_ingress).then(|| ON_THE_LINK.to_owned()));
    let source_ranges = kernel.source_ranges(&ours, &prediction, packet.source)?;
    let direct = kernel.direct_return(&rules, &packet, &prediction);
    let mut explanation = Explanation {
        packet,
        start,
        prediction,
        source_ranges,
        closed_node_port: None,
        direct,
        notes,
        generation,
    };
    if explanation.summary().service.is_none() {
        explanation.closed_node_port = closed_node_port(kernel, &explanation.packet);
    }
    Ok(explanation)
}

/// Returns the service with a node port, if the packet is for an address of this node.
fn closed_node_port(kernel: &mut Kernel, packet: &Packet) -> Option<ClosedNodePort> {
    let family = packet.family();
    let protocol = Protocol::ALL.into_iter().find(|it| it.number() == packet.protocol)?;
    let port = NonZeroU16::new(packet.port)?;
    let frontend = Frontend::NodePort { family, protocol, port };
    let is_local = is_local(kernel, packet.destination);
    let service = kernel.service_of(&ruleset::table(family), frontend).filter(|_| is_local)?;
    Some(ClosedNodePort { service, is_served_by_daemon: false })
}

/// What rules at the ingress of a device may compare.
const ON_THE_LINK: &str =
    "at ingress, it is sent to the hardware address of this node, whole, and with 64 hops left";

/// Builds the packet of a question. Open values are chosen as in the kernel, and noted.
fn packet(
    facts: &mut impl Facts,
    (question, protocol): (&Question, u8),
    notes: &mut Vec<String>,
) -> Result<(Packet, Start), Error> {
    let to = (question.to.ip(), question.to.port());
    let start = match (question.start, &question.interface, question.from) {
        (Some(start), ..) => start,
        (None, Some(_), _) => Start::Prerouting,
        (None, None, Some((from, _))) if !is_local(facts, from) => Start::Prerouting,
        (None, None, _) => Start::Output,
    };
    let from = match (question.from, start) {
        (Some(from), _) => from,
        (None, Start::Prerouting) => return Err(Error::NoSource),
        (None, Start::Output) => {
            let source = own_source(facts, to.0);
            notes.push(format!("the source is {source}, by the route of this node"));
            (source, None)
        }
    };
    let mut packet = Packet::new(from, to, protocol);
    if start == Start::Prerouting {
        packet.input = match &question.interface {
            Some(name) => interface(name)?,
            None => {
                let input = interface_towards(facts, from.0);
                notes.push(if input.is_known() {
                    format!("it comes in by {}, the interface to its source", input.name)
                } else {
                    format!(
                        "there is no route to {}, so the interface that it comes in by is not \
                         known: --in-interface gives it",
                        from.0
                    )
                });
                input
            }
        };
        packet.sender = sender(facts, from.0, &packet.input);
    }
    Ok((packet, start))
}

/// Returns the source address that the node selects for a packet.
fn own_source(facts: &mut impl Facts, to: IpAddr) -> IpAddr {
    let route = facts.route(to, Way::default());
    let source = route.and_then(Result::ok).and_then(|route| route.source);
    source.unwrap_or(match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    })
}

fn interface_towards(facts: &mut impl Facts, address: IpAddr) -> Interface {
    let route = facts.route(address, Way::default());
    let index = route.and_then(Result::ok).map(|route| route.interface);
    let name = index.and_then(interface_name);
    match (index, name) {
        (Some(index), Some(name)) if !name.is_empty() => Interface { index, name: name.into() },
        (_, _) => Interface::unknown(),
    }
}

/// Returns the hardware address of the host that sends a packet on the link of an interface, as the
/// way back to its source has it.
fn sender(facts: &mut impl Facts, from: IpAddr, input: &Interface) -> Option<[u8; 6]> {
    let route = facts.route(from, Way::default())?.ok()?;
    let neighbour = route.gateway.unwrap_or(from);
    let is_by_input = route.interface == input.index;
    is_by_input.then(|| facts.hardware_address(neighbour, input.index)).flatten()
}

fn interface(name: &str) -> Result<Interface, Error> {
    let index = interface_index(name).map_err(|_| Error::NoInterface(name.to_owned()))?;
    Ok(Interface { index, name: Arc::from(name) })
}

/// Returns whether an address is one of this node's.
fn is_local(facts: &mut dyn Facts, address: IpAddr) -> bool {
    let route = facts.route(address, Way::default());
    matches!(route, Some(Ok(route)) if route.kind == key::ROUTE_LOCAL)
}
