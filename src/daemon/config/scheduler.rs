//! The scheduler that a setting names.

use engine::model::Scheduler;
use engine::routing::LeastConnections;

use super::lc_settings;

/// A scheduler that a setting names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenScheduler {
    /// The scheduler in effect.
    pub(super) scheduler: Scheduler,
    /// Difference between that scheduler and the named one.
    pub(super) reservation: Option<String>,
}

impl ChosenScheduler {
    /// Returns the scheduler `name`, or the nearest one; the error is the expectation.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let named = Scheduler::named(name);
        let named = named.ok_or_else(|| format!("expected {}", Scheduler::NAMES))?;
        Ok(Self { scheduler: named.scheduler, reservation: named.reservation(name) })
    }

    /// Returns the scheduler that is used with these settings of `lc`.
    pub(super) fn with(self, settings: Option<LeastConnections>) -> Self {
        if self.scheduler != Scheduler::LeastConnections || settings.is_some() {
            return self;
        }
        let (named, scheduler) = (self.scheduler, Scheduler::default());
        let reservation = format!(
            "scheduler {named} is off: {scheduler} is used; \
             {}, or --least-connections, turns it on",
            lc_settings::INTERVAL
        );
        Self { scheduler, reservation: Some(reservation) }
    }

    /// Returns the scheduler `name` of a field or flag; the error is the actual value, and the expectation.
    pub(super) fn of_field(name: &str) -> Result<Self, String> {
        Self::parse(name).map_err(|expected| format!("is {name:?}; {expected}"))
    }

    /// Returns the scheduler that mode ipvs has under this name. An unknown one is replaced,
    /// because a file that is valid for kube-proxy must not stop this program.
    pub(super) fn of_ipvs(name: &str) -> Self {
        Self::parse(name).unwrap_or_else(|_| {
            let scheduler = Scheduler::default();
            let shown: String = name.chars().take(MAX_SHOWN).collect();
            let reservation = format!("scheduler {shown:?} does not exist: {scheduler} is used");
            Self { scheduler, reservation: Some(reservation) }
        })
    }
}

/// Most characters of a name in a message.
const MAX_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mode_ipvs_may_say_is_accepted_and_our_own_setting_is_checked() {
        assert_eq!(ChosenScheduler::parse("rr"), Ok(ChosenScheduler::default()));
        let nearest = ChosenScheduler::parse("sed").unwrap();
        assert_eq!(nearest, ChosenScheduler::of_ipvs("sed"));
        assert_eq!(
            nearest.reservation.unwrap(),
            "scheduler sed is not supported: rules cannot count the connections of an endpoint, \
             and weights follow them; lc is used instead"
        );
        let expected = "expected random, rr, wrr, lc, wlc, sh, sh-port, mh or mh-port";
        assert_eq!(ChosenScheduler::parse("fastest"), Err(expected.to_owned()));
        let replaced = ChosenScheduler::of_ipvs("fastest").reservation;
        assert_eq!(replaced.unwrap(), "scheduler \"fastest\" does not exist: random is used");
    }

    #[test]
    fn least_connections_need_an_interval() {
        let lc = || ChosenScheduler::parse("wlc").unwrap();
        let settings = lc_settings::every(std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(lc().with(settings), lc());
        let off = lc().with(None);
        assert_eq!(off.scheduler, Scheduler::Random);
        let expected = "scheduler lc is off: random is used; \
                        deltaproxy.leastConnections.interval, or --least-connections, turns it on";
        assert_eq!(off.reservation.unwrap(), expected);
        let hashed = ChosenScheduler::parse("mh").unwrap();
        assert_eq!(hashed.clone().with(None), hashed);
    }
}
