//! The number of services per scheduler, and of service ports without a local endpoint where a traffic
//! policy wants one.

use ahash::HashMap;
use nft::family::Family;

use crate::desired::DesiredService;
use crate::model::{ObjectName, Scheduler};

/// Number of service ports that have endpoints, but no local one, by the policy that is `Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocalPorts {
    /// `spec.internalTrafficPolicy`.
    pub internal: usize,
    /// `spec.externalTrafficPolicy`.
    pub external: usize,
}

/// The counts over all services.
#[derive(Debug, Default)]
pub(super) struct ServiceCounts {
    /// What counts of a service; those with the default scheduler and no such port are not stored.
    unusual: HashMap<ObjectName, Counted>,
    /// In the order of [`Scheduler::ALL`], without the default one.
    schedulers: [usize; Scheduler::ALL.len()],
    no_local: [NoLocalPorts; 2],
}

/// What counts of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    scheduler: Scheduler,
    no_local: [NoLocalPorts; 2],
}

impl ServiceCounts {
    /// Counts a service again.
    pub(super) fn note(&mut self, name: &ObjectName, desired: &DesiredService) {
        let mut new = Counted { scheduler: desired.scheduler, ..Counted::default() };
        for port in &desired.ports {
            let count = &mut new.no_local[port.family.index()];
            count.internal += usize::from(port.no_local.internal);
            count.external += usize::from(port.no_local.external);
        }
        let former = if new == Counted::default() {
            self.unusual.remove(name)
        } else {
            self.unusual.insert(name.clone(), new)
        };
        let former = former.unwrap_or_default();
        let counts = |it: Counted| usize::from(it.scheduler != Scheduler::default());
        self.schedulers[former.scheduler.place()] -= counts(former);
        self.schedulers[new.scheduler.place()] += counts(new);
        for ((all, former), new) in self.no_local.iter_mut().zip(former.no_local).zip(new.no_local)
        {
            all.internal = all.internal - former.internal + new.internal;
            all.external = all.external - former.external + new.external;
        }
    }

    /// Returns the number of services per scheduler, of `services` in all, in the order of
    /// [`Scheduler::ALL`].
    pub(super) fn by_scheduler(&self, services: usize) -> [usize; Scheduler::ALL.len()] {
        let mut counts = self.schedulers;
        let others: usize = counts.iter().sum();
        counts[Scheduler::default().place()] = services.saturating_sub(others);
        counts
    }

    /// Returns the ports of all services without a local endpoint.
    pub(super) fn no_local(&self, family: Family) -> NoLocalPorts {
        self.no_local[family.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HashedSource;

    #[test]
    fn each_service_counts_once_under_its_last_scheduler() {
        let [mh, by_port] =
            [HashedSource::Address, HashedSource::AddressAndPort].map(Scheduler::Maglev);
        let mut counts = ServiceCounts::default();
        let desired = |scheduler| DesiredService { scheduler, ..DesiredService::default() };
        let name = |number: u8| ObjectName::namespaced("default", &number.to_string());
        for (number, scheduler) in [(1, mh), (2, mh), (1, mh), (3, by_port), (2, by_port)] {
            counts.note(&name(number), &desired(scheduler));
        }
        assert_eq!(counts.by_scheduler(10), [7, 1, 2, 0]);
        (1..4).for_each(|number| counts.note(&name(number), &desired(Scheduler::Random)));
        assert_eq!(counts.by_scheduler(10), [10, 0, 0, 0]);
    }
}
