//! Services with scheduler `lc`: the shares of their endpoints, adjusted to live connections.
//!
//! Services are adjusted in turn. The number of changed slots is limited over all of them.

use ahash::HashMap;
use nft::family::Family;

use super::balanced::Shares;
use super::cluster::Cluster;
use super::name::ObjectName;
use super::protocol::Protocol;
use super::service::ServicePort;
use super::service_view::ServiceView;
use super::shares::{self, EVEN, Load};
use super::target::{Target, TargetList};

/// Services to be adjusted, and the live connections of their endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveConnections {
    /// Services, in the order of their adjustment.
    pub services: Vec<ObjectName>,
    /// Live connections of each of their endpoints.
    pub endpoints: HashMap<(Protocol, Target), u32>,
}

/// Result of one adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjusted {
    /// Services that were compared with their connections.
    pub services: usize,
    /// Slots that are changed, added or removed.
    pub slots: usize,
}

/// Endpoints after which an adjustment takes no further service. They take the loop some
/// milliseconds.
const ENDPOINTS: usize = 8_192;

impl Cluster {
    /// Uses scheduler `lc` from now on. No service may be known yet.
    pub fn balance_connections(&mut self) {
        self.balanced.is_on = true;
    }

    /// Returns whether a service has scheduler `lc`, and it is in use.
    pub fn has_balanced_services(&self) -> bool {
        !self.balanced.services.is_empty()
    }

    /// Returns the names of the services with scheduler `lc`, if it is in use.
    pub fn balanced_services(&self) -> impl Iterator<Item = &ObjectName> {
        self.balanced.services.keys()
    }

    /// Returns the services whose turn it is, with all their endpoints, each without connections.
    pub fn to_be_balanced(&self) -> LiveConnections {
        let mut desired = LiveConnections::default();
        for name in self.balanced.in_turn() {
            if desired.endpoints.len() >= ENDPOINTS {
                break;
            }
            let Some(view) = self.service(name) else { continue };
            desired.services.push(name.clone());
            for (port, _, targets) in lists(&view) {
                let keys = targets.iter().map(|target| ((port.protocol, *target), 0));
                desired.endpoints.extend(keys);
            }
        }
        desired
    }

    /// Adjusts the shares of services to live connections, while the allowance lasts. `changes`
    /// slots are added to it. Calls `touched` for each service with another share.
    pub fn balance(
        &mut self,
        counted: &LiveConnections,
        changes: u32,
        mut touched: impl FnMut(&ObjectName),
    ) -> Adjusted {
        let changes = i64::from(changes);
        let mut adjusted = Adjusted::default();
        // The allowance does not accumulate.
        self.balanced.allowance = self.balanced.allowance.saturating_add(changes).min(changes);
        for name in &counted.services {
            let Ok(limit @ 1..) = usize::try_from(self.balanced.allowance) else { break };
            self.balanced.last = Some(name.clone());
            // It may have another scheduler since.
            let Some(shares) = self.balanced.services.get(name) else { continue };
            let Some(view) = self.service(name) else { continue };
            let (shares, slots) = balance_service(&view, shares, &counted.endpoints, limit);
            adjusted.services += 1;
            if self.balanced.services.get(name) != Some(&shares) {
                adjusted.slots += slots;
                self.balanced.allowance -= i64::try_from(slots).unwrap_or(i64::MAX);
                self.balanced.services.insert(name.clone(), shares);
                touched(name);
            }
        }
        adjusted
    }

    /// Sets the shares of a service by the slots that endpoints have in the kernel, if it has none
    /// yet. `slots` returns the slots of the endpoints of a port and family.
    pub fn adopt_shares(
        &mut self,
        name: &ObjectName,
        slots: impl Fn(&ServicePort, Family) -> HashMap<Target, u32>,
    ) {
        if self.balanced.shares(name).is_none_or(|shares| !shares.are_even()) {
            return;
        }
        let Some(view) = self.service(name) else { return };
        let mut shares = Shares::default();
        for (port, family, mut targets) in lists(&view) {
            let weights = view.annotated_weights(port, family, &mut targets);
            let installed = slots(port, family);
            let slots = targets.iter().map(|target| installed.get(target).copied().unwrap_or(0));
            let slots: Vec<_> = slots.collect();
            let by_weight = |(i, slots): (usize, &u32)| {
                *slots == weights.as_ref().map_or(1, |weights| u32::from(weights[i]))
            };
            if slots.contains(&0) || slots.iter().enumerate().all(by_weight) {
                continue;
            }
            let found = shares::shares_of(weights.as_deref(), &slots);
            let keys = targets.iter().map(|target| (port.protocol, *target));
            keys.zip(found).for_each(|(key, share)| shares.set(key, share));
        }
        self.balanced.services.insert(name.clone(), shares);
    }
}

/// Returns the endpoints of each port and family, in the cluster and on this node.
fn lists<'a>(
    view: &'a ServiceView<'_>,
) -> impl Iterator<Item = (&'a ServicePort, Family, TargetList)> {
    let has_cluster_ip =
        |family: &Family| view.service.cluster_ips.iter().any(|ip| Family::of(*ip) == *family);
    let families = Family::ALL.into_iter().filter(has_cluster_ip);
    families.flat_map(move |family| {
        view.service.ports.iter().map(move |port| {
            let usable = view.usable_endpoints(port, family);
            let mut targets = usable.cluster;
            targets.extend(usable.local);
            targets.sort_unstable();
            targets.dedup();
            (port, family, targets)
        })
    })
}

/// Returns the new shares of a service, and the number of slots that change.
fn balance_service(
    view: &ServiceView<'_>,
    shares: &Shares,
    live: &HashMap<(Protocol, Target), u32>,
    limit: usize,
) -> (Shares, usize) {
    let (mut adjusted, mut slots) = (Shares::default(), 0);
    let mut seen = Vec::<(Protocol, Target)>::new();
    for (port, family, mut targets) in lists(view) {
        let weights = view.annotated_weights(port, family, &mut targets);
        let first = targets.first().map(|target| (port.protocol, *target));
        // Two ports with the same endpoints have the same connections.
        let Some(first) = first.filter(|first| !seen.contains(first)) else { continue };
        seen.push(first);
        let load = |(i, target): (usize, &Target)| Load {
            // An endpoint that came since has none.
            live: live.get(&(port.protocol, *target)).copied().unwrap_or(0),
            weight: weights.as_ref().map_or(1, |weights| weights[i]),
            share: shares.of(port.protocol, target),
        };
        let mut loads: Vec<_> = targets.iter().enumerate().map(load).collect();
        let was_even = are_even(&loads);
        slots += shares::adjust(&mut loads, limit.saturating_sub(slots));
        if was_even != are_even(&loads) {
            // A list of even shares has fewer slots.
            slots += usize::from(EVEN - 1) * loads.len();
        }
        for (target, load) in targets.iter().zip(&loads) {
            adjusted.set((port.protocol, *target), load.share);
        }
    }
    (adjusted, slots)
}

fn are_even(loads: &[Load]) -> bool {
    shares::are_even(loads.iter().map(|load| load.share))
}
