//! Schedulers: rules by which a new connection gets one of the usable endpoints.

use std::fmt;

/// Rule for the choice among usable endpoints, with the name of an IPVS scheduler.
///
/// Weights apply to every scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// A random endpoint, with a probability by its weight: `random`, `rr`, `wrr`.
    #[default]
    Random,
    /// The endpoint selected by a hash of the packet's source, the same on every node: `sh`, `mh`,
    /// and with the port `sh-port`, `mh-port`.
    Maglev(HashedSource),
    /// A random endpoint, with a probability by its weight and its live connections: `lc`, `wlc`.
    LeastConnections,
}

/// Fields of a packet's source that are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashedSource {
    /// Address: all connections of a client get one endpoint.
    Address,
    /// Address, and endpoints are placed by their addresses alone: all connections of a client to any
    /// port of the service get one pod, if its ports have the same endpoints.
    AddressForAllPorts,
    /// Address and port: each connection of a client is hashed separately.
    AddressAndPort,
}

/// Scheduler for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedScheduler {
    /// The scheduler, or the nearest one.
    pub scheduler: Scheduler,
    /// Why it is only the nearest; `None` if it is the named one.
    pub reason: Option<&'static str>,
}

impl Scheduler {
    /// Names without a reservation, for messages.
    pub const NAMES: &str = "random, rr, wrr, lc, wlc, sh, sh-port, mh or mh-port";

    /// A scheduler for each name.
    pub const ALL: [Self; 4] = [
        Self::Random,
        Self::Maglev(HashedSource::Address),
        Self::Maglev(HashedSource::AddressAndPort),
        Self::LeastConnections,
    ];

    /// Returns the index of its name in [`Scheduler::ALL`].
    pub const fn place(self) -> usize {
        match self {
            Self::Random => 0,
            Self::Maglev(HashedSource::Address | HashedSource::AddressForAllPorts) => 1,
            Self::Maglev(HashedSource::AddressAndPort) => 2,
            Self::LeastConnections => 3,
        }
    }

    /// Returns the scheduler for a name; `None` if neither IPVS nor Cilium has that name.
    pub fn named(name: &str) -> Option<NamedScheduler> {
        const BY_ADDRESS: Scheduler = Scheduler::Maglev(HashedSource::Address);
        const BY_PORT: Scheduler = Scheduler::Maglev(HashedSource::AddressAndPort);
        let (scheduler, reason) = match name {
            "random" | "rr" | "wrr" => (Self::Random, None),
            "sh" | "mh" | "maglev" => (BY_ADDRESS, None),
            "sh-port" | "mh-port" => (BY_PORT, None),
            "lc" | "wlc" => (Self::LeastConnections, None),
            "sed" | "nq" | "twos" => (
                Self::LeastConnections,
                Some("rules cannot count the connections of an endpoint, and weights follow them"),
            ),
            "lblc" | "lblcr" => (
                BY_ADDRESS,
                Some("rules cannot count connections, and a service is one destination"),
            ),
            "dh" => (
                BY_ADDRESS,
                Some("a service is one destination, so one endpoint would get all connections"),
            ),
            "fo" | "ovf" => (
                Self::Random,
                Some("weights give shares, and weight 0 keeps connections from an endpoint"),
            ),
            _ => return None,
        };
        Some(NamedScheduler { scheduler, reason })
    }

    /// Returns its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Maglev(HashedSource::Address | HashedSource::AddressForAllPorts) => "mh",
            Self::Maglev(HashedSource::AddressAndPort) => "mh-port",
            Self::LeastConnections => "lc",
        }
    }
}

impl NamedScheduler {
    /// Returns a message for users if the scheduler is only the nearest to `name`.
    pub fn reservation(self, name: &str) -> Option<String> {
        let nearest = self.scheduler;
        self.reason.map(|reason| {
            format!("scheduler {name} is not supported: {reason}; {nearest} is used instead")
        })
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All schedulers of Linux 6.18 (`net/netfilter/ipvs/ip_vs_*.c`).
    const OF_IPVS: [&str; 14] = [
        "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh",
        "twos",
    ];

    #[test]
    fn every_ipvs_scheduler_is_supported_or_has_a_replacement() {
        for name in OF_IPVS {
            let named = Scheduler::named(name).unwrap_or_else(|| panic!("{name} is unknown"));
            let is_exact = ["rr", "wrr", "lc", "wlc", "sh", "mh"].contains(&name);
            assert_eq!(named.reason.is_none(), is_exact, "{name}");
            let reservation = named.reservation(name);
            assert_eq!(reservation.is_none(), is_exact, "{name}");
            assert!(reservation.is_none_or(|it| it.contains(named.scheduler.name())), "{name}");
        }
        assert_eq!(Scheduler::named("quickest"), None);
    }

    #[test]
    fn each_scheduler_is_found_by_its_name() {
        for (place, scheduler) in Scheduler::ALL.into_iter().enumerate() {
            assert_eq!(scheduler.place(), place);
            assert_eq!(Scheduler::named(scheduler.name()).unwrap().scheduler, scheduler);
        }
    }

    #[test]
    fn scheduler_names_are_parsed_and_printed_alike() {
        for name in ["random", "mh", "mh-port", "lc"] {
            let named = Scheduler::named(name).map(|named| named.scheduler.name());
            assert_eq!(named, Some(name));
        }
        assert!(
            Scheduler::NAMES
                .split(", ")
                .all(|names| { names.split(" or ").all(|name| Scheduler::named(name).is_some()) })
        );
    }
}
