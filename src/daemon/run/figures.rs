//! Figures of the desired state: slots, schedulers, and service ports without local endpoints.

use engine::model::Scheduler;
use engine::{Engine, NoLocalPorts, SlotUse};
use nft::family::Family;

use crate::observe::Observe;

/// The figures reported last. A figure is reported only when it changes.
#[derive(Debug, Default)]
pub(super) struct Figures {
    no_local: [Option<NoLocalPorts>; 2],
    schedulers: Option<[usize; Scheduler::ALL.len()]>,
    slots: Option<SlotUse>,
}

impl Figures {
    pub(super) fn report(&mut self, engine: &Engine, observe: &Observe) {
        self.no_local_endpoints(engine, observe);
        self.schedulers(engine, observe);
        self.slots(engine, observe);
    }

    /// Reports the service ports whose policy wants a local endpoint and that have none.
    fn no_local_endpoints(&mut self, engine: &Engine, observe: &Observe) {
        for family in Family::ALL {
            let ports = engine.diff().no_local_endpoints(family);
            if self.no_local[family.index()].replace(ports) != Some(ports) {
                observe.metrics().kube_proxy.no_local_endpoints(
                    family,
                    ports.internal,
                    ports.external,
                );
            }
        }
    }

    /// Reports the number of services per scheduler.
    fn schedulers(&mut self, engine: &Engine, observe: &Observe) {
        let counts = engine.diff().services_by_scheduler();
        if self.schedulers.replace(counts) != Some(counts) {
            for (scheduler, count) in Scheduler::ALL.into_iter().zip(counts) {
                observe.metrics().figures.services.with([scheduler.name()]).set(count);
            }
        }
    }

    /// Reports the slots that services request and get.
    fn slots(&mut self, engine: &Engine, observe: &Observe) {
        let slots = engine.slots_in_use();
        if self.slots.replace(slots) != Some(slots) {
            let SlotUse { budget, requested, given, reduced } = slots;
            let figures = &observe.metrics().figures;
            figures.slots_budget.set(budget);
            figures.slots_requested.set(requested);
            figures.slots_given.set(given);
            figures.services_reduced.set(reduced);
        }
    }
}
