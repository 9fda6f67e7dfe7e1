//! Flows of conntrack, and the stale ones among them: of UDP, and of other protocols without an answer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use ahash::HashSet;
use nft::family::Family;

use crate::model::{Protocol, Target};

/// Pattern of flows whose entries are to be deleted. Of TCP and SCTP, those are connections whose
/// first packet has no answer.
///
/// The replies of a flow come from its endpoint, or, if no service translated the flow, from its
/// original destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StaleFlow {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Family of the addresses.
    pub family: Family,
    /// Original destination address; `None` matches any.
    pub address: Option<IpAddr>,
    /// Original destination port.
    pub port: NonZeroU16,
    /// Source of the replies; `None` matches any.
    pub endpoint: Option<Target>,
}

impl StaleFlow {
    /// Returns the pattern of UDP flows to this address and port.
    pub fn to(Target { address, port }: Target) -> Self {
        let (protocol, family) = (Protocol::Udp, Family::of(address));
        Self { protocol, family, address: Some(address), port, endpoint: None }
    }

    /// Returns the pattern of UDP flows to `frontend` with replies from `endpoint`.
    pub fn between(frontend: Target, endpoint: Target) -> Self {
        Self { endpoint: Some(endpoint), ..Self::to(frontend) }
    }

    /// Returns the pattern of UDP flows to this port of any address, with replies from `endpoint`.
    pub fn through_port(port: NonZeroU16, endpoint: Target) -> Self {
        Self { address: None, port, ..Self::between(endpoint, endpoint) }
    }

    /// Returns the pattern of UDP flows to `frontend` that no service translated.
    pub fn untranslated(frontend: Target) -> Self {
        Self::between(frontend, frontend)
    }
}

impl fmt::Display for StaleFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol != Protocol::Udp {
            write!(f, "unanswered {} ", self.protocol)?;
        }
        match self.address {
            Some(address) => write!(f, "to {}", SocketAddr::new(address, self.port.get()))?,
            None => write!(f, "to port {}", self.port)?,
        }
        match self.endpoint {
            Some(Target { address, port }) => {
                write!(f, " answered by {}", SocketAddr::new(address, port.get()))
            }
            None => Ok(()),
        }
    }
}

/// Protocol, destination and reply source of an entry, by which it is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Original destination.
    pub sent_to: Target,
    /// Source of the replies.
    pub answered_by: Target,
}

impl Flow {
    /// Returns whether the flow is translated to another address or port.
    pub fn is_translated(&self) -> bool {
        self.sent_to != self.answered_by
    }

    /// Returns the pattern that matches this flow and those that differ in their clients alone.
    pub fn pattern(&self) -> StaleFlow {
        let Self { protocol, sent_to, answered_by } = *self;
        StaleFlow { protocol, ..StaleFlow::between(sent_to, answered_by) }
    }

    /// Returns whether a pattern in `stale` matches this flow.
    pub fn is_among(&self, stale: &HashSet<StaleFlow>) -> bool {
        let exact = self.pattern();
        let (to, through_port) =
            (StaleFlow { endpoint: None, ..exact }, StaleFlow { address: None, ..exact });
        [exact, to, through_port].iter().any(|pattern| stale.contains(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    #[test]
    fn a_flow_is_stale_if_a_pattern_matches_its_destination_and_reply_source() {
        let (vip, pod) = (target("10.96.0.10:53"), target("10.244.1.5:5353"));
        let port = NonZeroU16::new(53).unwrap();
        let between = StaleFlow::between(vip, pod);
        let through = StaleFlow::through_port(port, pod);
        let all = [StaleFlow::to(vip), between, through, StaleFlow::untranslated(vip)];
        let rows = [
            ("10.96.0.10:53", "10.244.1.5:5353", [true, true, true, false]),
            ("10.96.0.10:53", "10.244.1.5:5354", [true, false, false, false]),
            ("10.96.0.10:53", "10.244.1.6:5353", [true, false, false, false]),
            ("10.96.0.10:53", "10.96.0.10:53", [true, false, false, true]),
            ("10.96.0.10:54", "10.244.1.5:5353", [false, false, false, false]),
            ("192.0.2.1:53", "10.244.1.5:5353", [false, false, true, false]),
            ("192.0.2.1:53", "192.0.2.1:53", [false, false, false, false]),
        ];
        for (sent_to, answered_by, expected) in rows {
            let (sent_to, answered_by) = (target(sent_to), target(answered_by));
            let flow = Flow { protocol: Protocol::Udp, sent_to, answered_by };
            let found = all.map(|stale| flow.is_among(&HashSet::from_iter([stale])));
            assert_eq!(found, expected, "{flow:?}");
        }
    }

    #[test]
    fn a_stale_flow_prints_its_destination_and_reply_source() {
        let (vip, pod) = (target("[fd00::10]:53"), target("[fd00::1]:5353"));
        let texts = [
            StaleFlow::to(vip),
            StaleFlow::between(vip, pod),
            StaleFlow::through_port(vip.port, pod),
            StaleFlow { protocol: Protocol::Tcp, ..StaleFlow::between(vip, pod) },
        ]
        .map(|flow| flow.to_string());
        assert_eq!(
            texts,
            [
                "to [fd00::10]:53",
                "to [fd00::10]:53 answered by [fd00::1]:5353",
                "to port 53 answered by [fd00::1]:5353",
                "unanswered tcp to [fd00::10]:53 answered by [fd00::1]:5353",
            ]
        );
    }
}
