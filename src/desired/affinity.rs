//! Session affinity: how a client is led back to the endpoint that it had before.
//!
//! The endpoints that one service port offers in the cluster, or on this node, are a *session*
//! with a number. Between rules a packet carries numbers as its priority, which nothing looks at
//! before the packet leaves:
//!
//! ```text
//! frontend        → session           affinity-services, affinity-nodeports, …
//! session         → drawn endpoint    affinity-slots, by a tree like those of other services
//! session, client → its endpoint      affinity-clients; the drawn one if it had none
//! endpoint        → address and port  affinity-endpoints, DNAT
//! ```
//!
//! A client's endpoint may have gone; then it is forgotten and another is drawn. So a connection
//! takes as many steps with three endpoints as with thousands, whatever changes is elements
//! without verdicts, and nothing but the client's own element remembers anything. A packet that
//! finds no endpoint here goes on as if there were no affinity.
//!
//! The priority of a locally sent packet could reach a queueing discipline, so it is cleared
//! after routing: that of the first packet of each flow whose destination was translated.
//!
//! A packet that sees one set before a commit and the next one after it may draw no endpoint and
//! store the session itself as what its client remembers. That leads nowhere, so the next
//! connection forgets it.

use std::time::Duration;

use super::base::ChainSpec;
use super::counts::{Pick, Tree};
use super::layout::SESSION;
use crate::nft::{DynsetOperation, Name, Selector, Statement};

/// Which service port and list of endpoints a client remembers one of.
///
/// The upper 17 bits of a packet priority; the lower ones are 0. Never below `1:0`, which nft
/// cannot load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session(u32);

/// An endpoint of a session: the lower 15 bits of a packet priority; not 0.
pub type EndpointId = u16;

const ENDPOINT_BITS: u32 = 15;

/// Endpoints of a session have numbers from 1 to this.
pub(super) const LAST_ENDPOINT: EndpointId = (1 << ENDPOINT_BITS) - 1;

impl Session {
    /// The lowest number.
    pub(super) const FIRST: u32 = 1 << (16 - ENDPOINT_BITS);
    /// The highest number.
    pub(super) const LAST: u32 = u32::MAX >> ENDPOINT_BITS;

    /// The session with a number from [`Session::FIRST`] to [`Session::LAST`].
    pub(super) const fn new(number: u32) -> Self {
        Self(number << ENDPOINT_BITS)
    }

    /// Its number.
    pub(super) const fn number(self) -> u32 {
        self.0 >> ENDPOINT_BITS
    }

    /// The packet priority that stands for the session.
    pub const fn class_id(self) -> u32 {
        self.0
    }

    /// The packet priority that stands for an endpoint of the session.
    pub const fn endpoint(self, id: EndpointId) -> u32 {
        self.0 | id as u32
    }

    /// The session that a packet priority stands for.
    pub fn from_class_id(id: u32) -> Option<Self> {
        let session = Self(id & !u32::from(LAST_ENDPOINT));
        (session.0 == id && session.number() >= Self::FIRST).then_some(session)
    }

    /// The session of the endpoint that a packet priority stands for.
    pub fn with_endpoint(id: u32) -> Option<Self> {
        Self::from_class_id(id & !u32::from(LAST_ENDPOINT))
    }

    /// The endpoint of this session that a packet priority stands for.
    pub fn endpoint_of(self, id: u32) -> Option<EndpointId> {
        let endpoint = u16::try_from(id ^ self.0).ok()?;
        (1..=LAST_ENDPOINT).contains(&endpoint).then_some(endpoint)
    }
}

/// What a key has because a service asks for session affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// The sessions of a frontend: for all traffic, and for traffic from outside with external
    /// traffic policy `Local`.
    Frontend([Option<Session>; 2]),
    /// The key is a session.
    Session {
        /// Seconds that a client is remembered after its last new connection.
        timeout: u32,
        /// The number of the endpoint in each slot.
        ids: Box<[EndpointId]>,
    },
}

/// Most endpoints of a session. There are four times as many numbers: endpoints that the kernel
/// has, those that were rendered last and new ones may all be others, and a number that was given
/// back is taken again as late as possible.
pub const LIMIT: u32 = 8_192;

/// The tree that draws an endpoint of a session.
pub(super) const TREE: Tree = Tree {
    root: "pick-affinity-endpoint",
    map: "affinity-slots",
    key: SESSION,
    limit: LIMIT,
    pick: Pick::AffinityEndpoint,
};

/// Where every tree of frontends sends packets first.
pub(super) const ROOT: &str = "affinity";

/// The map of clients; only packets write it.
pub(super) const CLIENTS: &str = "affinity-clients";

/// Address and port of each endpoint of a session.
pub(super) const ENDPOINTS: &str = "affinity-endpoints";

/// The name of the set of sessions, and of the chain for them, whose clients are remembered so
/// many seconds.
pub(super) fn timeout_name(seconds: u32) -> String {
    format!("affinity-{seconds}s")
}

/// The seconds in a name made by [`timeout_name`].
pub(super) fn timeout_of_name(name: &str) -> Option<u32> {
    let seconds = name.strip_prefix("affinity-")?.strip_suffix('s')?.parse().ok()?;
    (timeout_name(seconds) == name).then_some(seconds)
}

/// The chains that lead clients back, each after those that it refers to; `timeouts` in seconds.
pub(super) fn chains(timeouts: &[u32]) -> Vec<ChainSpec> {
    let mut chains = Vec::new();
    for &seconds in timeouts {
        let name: Name = timeout_name(seconds).into();
        let attempt: Name = format!("{name}-attempt").into();
        chains.push(ChainSpec::new(attempt.clone(), attempt_rules(seconds)));
        chains.push(ChainSpec::new(name, timeout_rules(&attempt)));
    }
    let dispatch = timeouts.iter().map(|&seconds| {
        let name: Name = timeout_name(seconds).into();
        vec![Statement::in_set(SESSION, name.clone()), Statement::goto(name)]
    });
    chains.push(ChainSpec::new(ROOT, dispatch));
    chains
}

/// An endpoint is drawn before it is known whether it is needed: an update makes the element or
/// renews it, and the lookup after it finds the endpoint in either case.
fn attempt_rules(seconds: u32) -> Vec<Vec<Statement>> {
    let remember = Statement::Element {
        operation: DynsetOperation::Update,
        set: CLIENTS.into(),
        key: client(),
        data: Some(Selector::Priority),
        timeout: Some(Duration::from_secs(seconds.into())),
    };
    vec![
        vec![Statement::jump(TREE.root)],
        vec![remember],
        vec![Statement::PriorityMap { key: client(), map: CLIENTS.into() }],
        vec![Statement::DnatMap { key: SESSION.to_vec(), map: ENDPOINTS.into() }],
    ]
}

/// Whoever comes back from the first attempt remembers an endpoint that is gone.
fn timeout_rules(attempt: &Name) -> Vec<Vec<Statement>> {
    let forget = Statement::Element {
        operation: DynsetOperation::Delete,
        set: CLIENTS.into(),
        key: client(),
        data: Some(Selector::Priority),
        timeout: None,
    };
    vec![
        vec![Statement::jump(attempt.clone())],
        vec![forget],
        vec![Statement::PrioritySet(SESSION_BITS)],
        vec![Statement::goto(attempt.clone())],
    ]
}

/// The session, whether the priority is that or one of its endpoints.
const SESSION_BITS: Selector = Selector::PriorityBits(!(LAST_ENDPOINT as u32));

/// The key of `affinity-clients`.
fn client() -> Vec<Selector> {
    vec![SESSION_BITS, Selector::Saddr]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_tells_session_and_endpoint() {
        let session = Session::new(Session::FIRST + 1);
        assert_eq!(session.class_id(), 0x0001_8000);
        assert_eq!(session.endpoint(3), 0x0001_8003);
        assert_eq!(Session::from_class_id(0x0001_8000), Some(session));
        assert_eq!(Session::from_class_id(0x0001_8003), None);
        assert_eq!(Session::from_class_id(0x8000), None);
        assert_eq!(session.endpoint_of(0x0001_8003), Some(3));
        assert_eq!(session.endpoint_of(0x0001_8000), None);
        assert_eq!(session.endpoint_of(0x0001_0003), None);
        assert_eq!(Session::new(Session::LAST).class_id(), 0xffff_8000);
    }

    #[test]
    fn only_names_of_timeouts_are_taken_for_such() {
        assert_eq!(timeout_of_name("affinity-10800s"), Some(10_800));
        for name in ["affinity-clients", "affinity-010s", "affinity-s", "affinity-+1s"] {
            assert_eq!(timeout_of_name(name), None, "{name}");
        }
    }
}
