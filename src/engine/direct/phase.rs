//! How far a service is on the way to direct return and back.
//!
//! A node that begins to hand packets on would break connections that it serves itself. So it
//! remembers all connections for a while before, and hands on only new ones.
//!
//! ```text
//!  none --desired--> Learning --time--> Direct --not desired--> Leaving --time--> none
//!                       |                 ^                       |
//!                       +--not desired--> none      desired ------+
//! ```

use std::time::{Duration, Instant};

/// The forwarding of external packets of a service in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This node serves all packets and remembers their connections, until this time.
    Learning(Instant),
    /// New connections are spread over the nodes.
    Direct,
    /// This node serves new connections. Packets of known ones are handed on, until this time.
    Leaving(Instant),
}

/// The times that a service needs before and after direct return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Now.
    pub(super) now: Instant,
    /// The time in which each connection of the service has had a packet.
    pub(super) learning: Duration,
    /// The time for which connections are remembered.
    pub(super) leaving: Duration,
}

impl Phase {
    /// Returns the phase at a time; `None` if the service has no elements for direct return.
    pub(super) fn after(phase: Option<Self>, is_desired: bool, times: Times) -> Option<Self> {
        let Times { now, learning, leaving } = times;
        match (phase, is_desired) {
            (None, true) if learning.is_zero() => Some(Self::Direct),
            (None, true) => Some(Self::Learning(now + learning)),
            (Some(Self::Learning(end)), true) if now >= end => Some(Self::Direct),
            (Some(Self::Learning(end)), true) => Some(Self::Learning(end)),
            (Some(Self::Direct | Self::Leaving(_)), true) => Some(Self::Direct),
            (Some(Self::Direct), false) => Some(Self::Leaving(now + leaving)),
            (Some(Self::Leaving(end)), false) if now < end => Some(Self::Leaving(end)),
            (None | Some(Self::Learning(_) | Self::Leaving(_)), false) => None,
        }
    }

    /// Returns when the phase ends by itself.
    pub(super) fn end(self) -> Option<Instant> {
        match self {
            Self::Learning(end) | Self::Leaving(end) => Some(end),
            Self::Direct => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // The first time is any time.
mod tests {
    use super::*;

    #[test]
    fn every_phase_leads_to_the_next_one() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let at = |passed| Times {
            now: start + seconds(passed),
            learning: seconds(5),
            leaving: seconds(7),
        };
        let (learning, leaving) =
            (Some(Phase::Learning(start + seconds(5))), Some(Phase::Leaving(start + seconds(7))));
        let direct = Some(Phase::Direct);
        for (phase, is_desired, passed, expected) in [
            (None, false, 0, None),
            (None, true, 0, learning),
            (learning, true, 4, learning),
            (learning, true, 5, direct),
            (learning, false, 4, None),
            (direct, true, 9, direct),
            (direct, false, 0, leaving),
            (leaving, false, 6, leaving),
            (leaving, false, 7, None),
            (leaving, true, 6, direct),
        ] {
            assert_eq!(
                Phase::after(phase, is_desired, at(passed)),
                expected,
                "{phase:?} {is_desired}"
            );
        }
        let fresh = Times { learning: Duration::ZERO, ..at(0) };
        assert_eq!(Phase::after(None, true, fresh), direct, "no connection can be older");
    }
}
