//! The number of services per scheduler.

use ahash::HashMap;

use crate::model::{ObjectName, Scheduler};

/// The schedulers of services; those with the default scheduler are not stored.
#[derive(Debug, Default)]
pub(super) struct Schedulers {
    unusual: HashMap<ObjectName, Scheduler>,
    /// In the order of [`Scheduler::ALL`].
    counts: [usize; Scheduler::ALL.len()],
}

impl Schedulers {
    /// Records the scheduler of a service.
    pub(super) fn note(&mut self, name: &ObjectName, scheduler: Scheduler) {
        let former = if scheduler == Scheduler::default() {
            self.unusual.remove(name)
        } else {
            self.unusual.insert(name.clone(), scheduler)
        };
        if former != Some(scheduler) {
            if let Some(former) = former {
                self.counts[former.place()] -= 1;
            }
            self.counts[scheduler.place()] += usize::from(scheduler != Scheduler::default());
        }
    }

    /// Returns the number of services per scheduler, of `services` in all, in the order of
    /// [`Scheduler::ALL`].
    pub(super) fn counts(&self, services: usize) -> [usize; Scheduler::ALL.len()] {
        let mut counts = self.counts;
        let usual = services.saturating_sub(self.unusual.len());
        counts[Scheduler::default().place()] = usual;
        counts
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
        let mut schedulers = Schedulers::default();
        let name = |number: u8| ObjectName::namespaced("default", &number.to_string());
        for (number, scheduler) in [(1, mh), (2, mh), (1, mh), (3, by_port), (2, by_port)] {
            schedulers.note(&name(number), scheduler);
        }
        assert_eq!(schedulers.counts(10), [7, 1, 2, 0]);
        (1..4).for_each(|number| schedulers.note(&name(number), Scheduler::Random));
        assert_eq!(schedulers.counts(10), [10, 0, 0, 0]);
    }
}
