//! The explanation of one packet, and its summary.

use engine::ruleset::{Member, TableElement};
use nft::kernel::Generation;

use super::direct::DirectReturn;
use super::packet::Packet;
use super::service::{Service, elements, service};
use super::sources::SourceRanges;
use super::step::{Fate, PossibleFate, Prediction};
use super::walk::Start;

/// Path and fate of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The packet.
    pub packet: Packet,
    /// Hook where the packet starts.
    pub start: Start,
    /// Outcomes and steps.
    pub prediction: Prediction,
    /// Sources that may use the load balancer address; `None` if all may.
    pub source_ranges: Option<SourceRanges>,
    /// The service whose node port the destination is, although no rule serves it there.
    pub closed_node_port: Option<ClosedNodePort>,
    /// What table direct-return makes of the packet; `None` without the table.
    pub direct: Option<DirectReturn>,
    /// Assumptions, and parts that are not evaluated.
    pub notes: Vec<String>,
    /// Generation of the rule set.
    pub generation: Generation,
}

/// A node port at an address of this node at which no rule serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedNodePort {
    /// The service.
    pub service: Service,
    /// The daemon serves it itself, at `[::1]`.
    pub is_served_by_daemon: bool,
}

/// Summary of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The service; `None` if no service has the destination.
    pub service: Option<Service>,
    /// The destination is the ClusterIP of a service, on any port.
    pub is_cluster_ip: bool,
    /// The endpoint sees the node's address, because packets are marked or translated.
    pub is_masqueraded: bool,
}

impl Explanation {
    /// Returns whether every such packet is sent on at ingress: the rules for its service do not
    /// apply.
    pub fn is_handed_on(&self) -> bool {
        let outcomes = &self.prediction.outcomes;
        let handed = |it: &PossibleFate| matches!(it.fate, Fate::Handed(_));
        !outcomes.is_empty() && outcomes.iter().all(handed)
    }

    /// Returns the summary.
    pub fn summary(&self) -> Summary {
        let is_masqueraded = self
            .prediction
            .outcomes
            .iter()
            .any(|outcome| matches!(outcome.fate, Fate::Sent { masqueraded: true, .. }));
        // Packets of other sources are dropped before the service is looked up.
        let ranges = self.source_ranges.as_ref();
        let of_ranges = || ranges.and_then(|ranges| ranges.service.clone());
        // Rules of this node do not look up the service of a packet that is handed on.
        let handed = || self.direct.as_ref().and_then(|direct| direct.service.clone());
        Summary {
            // The first one: before translation.
            service: elements(&self.prediction)
                .find_map(service)
                .or_else(of_ranges)
                .or_else(handed),
            is_cluster_ip: elements(&self.prediction)
                .any(|element| matches!(element, TableElement::Member(Member::ClusterIp(_)))),
            is_masqueraded,
        }
    }
}
