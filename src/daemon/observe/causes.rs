//! Why a transaction was made.

use std::fmt;

engine::named! {
    /// What made a commit necessary.
    pub enum Cause {
        /// The first lists of objects: the daemon started.
        Start = "start",
        /// An object changed.
        Event = "event",
        /// The addresses of this node changed.
        Addresses = "addresses",
        /// Another program changed the tables.
        OtherProgram = "other-program",
        /// The background check found a difference.
        Check = "check",
        /// The kernel refused a transaction, or its outcome was not known.
        Refusal = "refusal",
        /// Elements that packets could still look up were no longer used for some time.
        Unused = "unused",
        /// Scheduler `lc` counted connections.
        Connections = "connections",
        /// Network devices came or went, so the flowtable changed.
        Devices = "devices",
        /// A table was replaced by one with other flags, or a copy of that replacement was removed.
        Handover = "handover",
        /// The first lists of objects after the configuration changed.
        Reload = "reload",
        /// Other nodes came, went or are reached otherwise, or a service begins or ends direct return.
        Nodes = "nodes",
    }
}

/// The causes that waited when a transaction was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(u16);

impl Causes {
    /// Adds a cause.
    pub fn add(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u8;
    }

    /// Returns this cause alone.
    pub fn only(cause: Cause) -> Self {
        let mut causes = Self::default();
        causes.add(cause);
        causes
    }

    /// Returns their names.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |cause: &Cause| self.0 & (1 << *cause as u8) != 0;
        Cause::ALL.into_iter().filter(has).map(Cause::name)
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_bit_of_its_own() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
    }
}
