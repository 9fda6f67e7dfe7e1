//! Flows of conntrack, and the stale ones among them: of UDP, and of other protocols without an answer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use ahash::HashSet;
use nft::family::Family;

use crate::model::{Protocol, Target};

/// Pattern of flows whose entries are to be deleted: of UDP, unless it names a protocol.
///
/// The replies of a flow come from its endpoint, or, if no service translated the flow, from its
/// original destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StaleFlow {
    /// All flows to this address and port.
    To(Target),
    /// Flows to `frontend` with replies from `endpoint`.
    Between {
        /// Original destination.
        frontend: Target,
        /// Source of the replies.
        endpoint: Target,
    },
    /// Flows to this port of any address, with replies from `endpoint`.
    ThroughPort {
        /// Original destination port.
        port: NonZeroU16,
        /// Source of the replies.
        endpoint: Target,
    },
    /// Connections of TCP or SCTP whose first packet has no answer.
    Unanswered(Flow),
}

impl StaleFlow {
    /// Returns the pattern of flows to `frontend` that no service translated.
    pub fn untranslated(frontend: Target) -> Self {
        Self::Between { frontend, endpoint: frontend }
    }

    /// Returns the family of its addresses.
    pub fn family(&self) -> Family {
        match self {
            Self::To(target)
            | Self::Between { frontend: target, .. }
            | Self::ThroughPort { endpoint: target, .. }
            | Self::Unanswered(Flow { sent_to: target, .. }) => Family::of(target.address),
        }
    }

    /// Returns the original destination address; `None` matches any.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::To(frontend)
            | Self::Between { frontend, .. }
            | Self::Unanswered(Flow { sent_to: frontend, .. }) => Some(frontend.address),
            Self::ThroughPort { .. } => None,
        }
    }

    /// Returns the original destination port.
    pub fn port(&self) -> NonZeroU16 {
        match self {
            Self::To(frontend)
            | Self::Between { frontend, .. }
            | Self::Unanswered(Flow { sent_to: frontend, .. }) => frontend.port,
            Self::ThroughPort { port, .. } => *port,
        }
    }

    /// Returns the source of the replies; `None` matches any.
    pub fn endpoint(&self) -> Option<Target> {
        match self {
            Self::To(_) => None,
            Self::Between { endpoint, .. }
            | Self::ThroughPort { endpoint, .. }
            | Self::Unanswered(Flow { answered_by: endpoint, .. }) => Some(*endpoint),
        }
    }
}

impl fmt::Display for StaleFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Unanswered(flow) = self {
            write!(f, "unanswered {} ", flow.protocol)?;
        }
        match self.address() {
            Some(address) => write!(f, "to {}", SocketAddr::new(address, self.port().get()))?,
            None => write!(f, "to port {}", self.port())?,
        }
        match self.endpoint() {
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

    /// Returns whether a pattern in `stale` matches this flow.
    pub fn is_among(&self, stale: &HashSet<StaleFlow>) -> bool {
        if self.protocol != Protocol::Udp {
            return stale.contains(&StaleFlow::Unanswered(*self));
        }
        let (frontend, endpoint) = (self.sent_to, self.answered_by);
        stale.contains(&StaleFlow::To(frontend))
            || stale.contains(&StaleFlow::Between { frontend, endpoint })
            || stale.contains(&StaleFlow::ThroughPort { port: frontend.port, endpoint })
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
        let between = StaleFlow::Between { frontend: vip, endpoint: pod };
        let through = StaleFlow::ThroughPort { port, endpoint: pod };
        let all = [StaleFlow::To(vip), between, through, StaleFlow::untranslated(vip)];
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
            StaleFlow::To(vip),
            StaleFlow::Between { frontend: vip, endpoint: pod },
            StaleFlow::ThroughPort { port: vip.port, endpoint: pod },
            StaleFlow::Unanswered(Flow { protocol: Protocol::Tcp, sent_to: vip, answered_by: pod }),
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
