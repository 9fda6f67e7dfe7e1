//! Whether the services of this node work: what the condition of its Node object shows.

use std::time::Duration;

use super::hub::Observe;
use super::times::now;

/// Whether services work, or the first reason why some may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The kernel refuses a table, or another program owns it.
    TablesBlocked,
    /// The first sync is not in the kernel.
    Starting,
    /// No address of this node serves NodePorts.
    NodePortsClosed,
    /// Services or EndpointSlices are not watched for too long.
    ApiServerLost,
    /// None of these.
    Ready,
}

/// Resources without whose watch packets reach endpoints that are gone.
const NEEDED: [&str; 2] = ["services", "endpointslices.discovery.k8s.io"];

impl Observe {
    /// Returns the readiness; a watch may be lost for `lost_after`, of which zero is for ever.
    pub fn readiness(&self, lost_after: Duration) -> Readiness {
        let record = &self.shared.record;
        let is_synced = {
            let health = self.shared.health.lock();
            health.is_ready() && !health.lacks_node
        };
        let lost_for = record.lost_since(&NEEDED).map(|at| now().saturating_duration_since(at));
        if record.blocked.lock().iter().any(Option::is_some) {
            Readiness::TablesBlocked
        } else if !is_synced {
            Readiness::Starting
        } else if self.metrics().own.are_node_ports_closed() {
            Readiness::NodePortsClosed
        } else if !lost_after.is_zero() && lost_for.is_some_and(|time| time >= lost_after) {
            Readiness::ApiServerLost
        } else {
            Readiness::Ready
        }
    }
}

#[cfg(test)]
mod tests {
    use nft::family::Family;

    use super::*;

    #[test]
    fn each_reason_is_shown_while_it_lasts() {
        const LONG: Duration = Duration::from_hours(1);
        let observe = Observe::new();
        let own = &observe.metrics().own;
        let is = |lost_after| observe.readiness(lost_after);
        assert_eq!(is(LONG), Readiness::Starting);
        Family::ALL.into_iter().for_each(|family| observe.synced(family, now()));
        assert_eq!(is(LONG), Readiness::Ready);
        own.node_ports_closed[0].set(true);
        assert_eq!(is(LONG), Readiness::Ready);
        own.node_ports_closed[1].set(true);
        assert_eq!(is(LONG), Readiness::NodePortsClosed);
        observe.table_blocked(Family::Ip6, Some("owned"));
        assert_eq!(is(LONG), Readiness::TablesBlocked);
        observe.table_blocked(Family::Ip6, None);
        own.node_ports_closed[1].set(false);
        observe.lacks_node(true);
        assert_eq!(is(LONG), Readiness::Starting);
        observe.lacks_node(false);
        assert_eq!(is(LONG), Readiness::Ready);
    }

    #[test]
    fn a_watch_may_be_lost_for_a_while_and_others_for_ever() {
        let (observe, soon) = (Observe::new(), Duration::from_nanos(1));
        Family::ALL.into_iter().for_each(|family| observe.synced(family, now()));
        observe.watch_lost("nodes", "tls");
        observe.watch_lost("servicecidrs.networking.k8s.io", "forbidden");
        assert_eq!(observe.readiness(soon), Readiness::Ready);
        for resource in NEEDED {
            observe.watch_lost(resource, "tls");
            assert_eq!(observe.readiness(soon), Readiness::ApiServerLost);
            assert_eq!(observe.readiness(Duration::from_hours(1)), Readiness::Ready);
            assert_eq!(observe.readiness(Duration::ZERO), Readiness::Ready);
            observe.watch_heard(resource, now());
            assert_eq!(observe.readiness(soon), Readiness::Ready);
        }
    }
}
