//! Figures of the desired state and of session affinity.

use nft::family::Family as IpFamily;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::direct::DirectReturn;
use super::names::{Label, Names, metrics};

metrics! {
    /// Gauges of the services, their slots, and their clients.
    pub struct Figures(names: &mut Names<'_>) {
        /// Absent until the kernel has reported a value.
        affinity_clients: Family<Label<&'static str>, Gauge> = names.add("affinity_clients",
            "Client hashes that session affinity has recorded, if the kernel reports them");
        affinity_clients_max: Gauge = names.add("affinity_clients_max",
            "Maximum number of recorded client hashes in each family");
        services: Family<Label<&'static str>, Gauge> = names.add("services",
            "Services that are routed, by scheduler");
        slots_budget: Gauge = names.add("slots_budget",
            "Slots that services may use beyond one for each endpoint");
        slots_requested: Gauge = names.add("slots_requested",
            "Slots that services request beyond one for each endpoint");
        slots_given: Gauge = names.add("slots_given",
            "Slots that services get beyond one for each endpoint");
        services_reduced: Gauge = names.add("services_reduced",
            "Services that get fewer slots than they request");
        direct_return: DirectReturn = DirectReturn::register(names);
    }
}

/// Slots of weights and hash tables, and the services that get fewer than they request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that services may use beyond one for each endpoint.
    pub budget: u64,
    /// Slots that they request.
    pub requested: u64,
    /// Slots that they get.
    pub given: u64,
    /// Services that get fewer than they request.
    pub reduced: usize,
}

impl Figures {
    /// Returns the gauges of direct return.
    pub fn direct_return(&self) -> &DirectReturn {
        &self.direct_return
    }

    /// Sets the number of client hashes that session affinity has recorded in a family.
    pub fn affinity_clients(&self, family: IpFamily, count: u32) {
        let label = [("ip_family", family.name())];
        self.affinity_clients.get_or_create(&label).set(count.into());
    }

    /// Sets the maximum number of recorded client hashes in each family.
    pub fn affinity_clients_max(&self, most: u32) {
        self.affinity_clients_max.set(most.into());
    }

    /// Sets the number of services with a scheduler.
    pub fn services(&self, scheduler: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.services.get_or_create(&[("scheduler", scheduler)]).set(count);
    }

    /// Sets the slots of weights and tables.
    pub fn slots(&self, SlotCounts { budget, requested, given, reduced }: SlotCounts) {
        let gauges =
            [&self.slots_budget, &self.slots_requested, &self.slots_given, &self.services_reduced];
        for (gauge, value) in gauges.into_iter().zip([budget, requested, given, reduced as u64]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn clients_with_affinity_have_a_value_once_they_are_counted() {
        let observe = Observe::new();
        observe.figures().services("mh", 3);
        has(&observe, &["deltaproxy_services{scheduler=\"mh\"} 3"]);
        observe.figures().slots(SlotCounts { budget: 9, requested: 8, given: 7, reduced: 6 });
        has(
            &observe,
            &[
                "deltaproxy_slots_budget 9",
                "deltaproxy_slots_requested 8",
                "deltaproxy_slots_given 7",
                "deltaproxy_services_reduced 6",
            ],
        );
        observe.figures().affinity_clients_max(1_000);
        has(&observe, &["deltaproxy_affinity_clients_max 1000"]);
        assert!(!observe.shared.metrics.text().contains("deltaproxy_affinity_clients{"));
        observe.figures().affinity_clients(IpFamily::Ip6, 7);
        has(&observe, &["deltaproxy_affinity_clients{ip_family=\"IPv6\"} 7"]);
    }
}
