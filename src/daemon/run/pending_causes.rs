//! The causes of the next transactions, for the history.

use std::num::NonZeroU64;

use engine::doubt;

use crate::observe::{Cause, Causes};

/// What happened since the kernel last held the desired state.
#[derive(Debug)]
pub(super) struct PendingCauses {
    /// Why the daemon started.
    start: Cause,
    pub(super) causes: Causes,
    /// Resource version of the last object that changed.
    pub(super) resource_version: Option<NonZeroU64>,
}

impl PendingCauses {
    /// Returns no causes of a daemon that started for this one.
    pub(super) fn new(start: Cause) -> Self {
        Self { start, causes: Causes::default(), resource_version: None }
    }

    pub(super) fn add(&mut self, cause: Cause) {
        self.causes.add(cause);
    }

    /// Adds an arrival of events, whose last object has this version.
    pub(super) fn add_arrival(&mut self, was_listed: bool, version: Option<NonZeroU64>) {
        self.add(if was_listed { Cause::Event } else { self.start });
        self.resource_version = version.or(self.resource_version);
    }

    /// Adds the reason why the tables are not certain.
    pub(super) fn add_doubt(&mut self, cause: doubt::DoubtCause) {
        self.add(match cause {
            doubt::DoubtCause::Start => self.start,
            doubt::DoubtCause::Commit | doubt::DoubtCause::Request => Cause::Refusal,
            doubt::DoubtCause::OtherProgram => Cause::OtherProgram,
            doubt::DoubtCause::Check => Cause::Check,
        });
    }

    /// Forgets the causes: the kernel holds the desired state.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_add_up_until_the_kernel_holds_the_desired_state() {
        let mut pending = PendingCauses::new(Cause::Start);
        let version = NonZeroU64::new(5);
        pending.add_arrival(true, version);
        pending.add_arrival(true, None);
        pending.add_doubt(doubt::DoubtCause::OtherProgram);
        assert_eq!(pending.causes.to_string(), "event,other-program");
        assert_eq!(pending.resource_version, version);
        pending.clear();
        assert_eq!((pending.causes, pending.resource_version), (Causes::default(), None));
    }

    #[test]
    fn the_first_lists_after_a_reload_are_no_start() {
        for (start, name) in [(Cause::Start, "start"), (Cause::Reload, "reload")] {
            let mut pending = PendingCauses::new(start);
            pending.add_doubt(doubt::DoubtCause::Start);
            pending.add_arrival(false, None);
            assert_eq!(pending.causes.to_string(), name);
            pending.clear();
            pending.add_arrival(false, None);
            assert_eq!(pending.causes.to_string(), name);
        }
    }
}
