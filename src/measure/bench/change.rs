//! A stream of random changes of a synthetic cluster, determined by a seed.
//!
//! Every change alters the desired elements. The cluster keeps about its size: additions beyond the
//! initial state are removed again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::random::Random;
use super::watch_frame::WatchFrame;

engine::named! {
    /// Kind of a change.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ChangeKind {
        /// One endpoint is added, removed or replaced.
        Endpoint = "endpoint change",
        /// A service with its endpoints is added or removed.
        Service = "service change",
        /// The internal traffic policy of a service changes, or its external IP is added or removed.
        Policy = "policy change",
    }
}

/// Action of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// Add an endpoint.
    AddEndpoint,
    /// Remove an endpoint.
    RemoveEndpoint,
    /// Remove an endpoint and add another.
    ReplaceEndpoint,
    /// Add a service with its endpoints.
    AddService,
    /// Remove a service with its endpoints.
    RemoveService,
    /// Change the policy of a service, or add or remove its external IP.
    ChangePolicy,
}

impl Deed {
    /// Returns the kind of the change.
    pub fn kind(self) -> ChangeKind {
        match self {
            Self::AddEndpoint | Self::RemoveEndpoint | Self::ReplaceEndpoint => {
                ChangeKind::Endpoint
            }
            Self::AddService | Self::RemoveService => ChangeKind::Service,
            Self::ChangePolicy => ChangeKind::Policy,
        }
    }
}

/// Shares of the kinds of changes, as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Weight of [`ChangeKind::Endpoint`].
    pub endpoint: u32,
    /// Weight of [`ChangeKind::Service`].
    pub service: u32,
    /// Weight of [`ChangeKind::Policy`].
    pub policy: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Self { endpoint: 90, service: 8, policy: 2 }
    }
}

/// Error of parsing a mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// A part is not `kind=weight`.
    #[error("\"{0}\" is not KIND=WEIGHT, such as endpoint=90; kinds are endpoint, service, policy")]
    Part(String),
    /// No kind has a weight.
    #[error("one of endpoint, service and policy must be more than 0")]
    Nothing,
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        let mut mix = Self { endpoint: 0, service: 0, policy: 0 };
        for part in text.split(',') {
            let wrong = || MixError::Part(part.to_owned());
            let (kind, weight) = part.split_once('=').ok_or_else(wrong)?;
            let weight: u16 = weight.trim().parse().map_err(|_| wrong())?;
            *match kind.trim() {
                "endpoint" => &mut mix.endpoint,
                "service" => &mut mix.service,
                "policy" => &mut mix.policy,
                _ => return Err(wrong()),
            } = weight.into();
        }
        if mix.total() == 0 { Err(MixError::Nothing) } else { Ok(mix) }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, service, policy } = self;
        write!(f, "endpoint={endpoint},service={service},policy={policy}")
    }
}

impl Mix {
    fn total(self) -> u32 {
        self.endpoint + self.service + self.policy
    }

    fn pick(self, random: &mut Random) -> ChangeKind {
        let number = random.below(self.total());
        if number < self.endpoint {
            ChangeKind::Endpoint
        } else if number < self.endpoint + self.service {
            ChangeKind::Service
        } else {
            ChangeKind::Policy
        }
    }
}

/// A change, as the API server sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChange {
    /// Action of the change.
    pub deed: Deed,
    /// Number of the changed service.
    pub service: u32,
    /// Frames of the watches.
    pub frames: Vec<WatchFrame>,
}

/// Endless sequence of changes.
#[derive(Clone, Debug)]
pub struct Changes {
    random: Random,
    mix: Mix,
    /// Services that were added and not yet removed.
    added: Vec<u32>,
    next_service: u32,
}

impl Changes {
    /// Creates a sequence that depends only on the seed and the cluster.
    pub fn new(cluster: &Cluster, mix: Mix, seed: u64) -> Self {
        // Another random sequence than that of the endpoint counts.
        let random = Random::new(seed ^ 0x6368_616e_6765_7300);
        Self { random, mix, added: Vec::new(), next_service: cluster.services() }
    }

    /// Makes the next change in `cluster` and returns it.
    pub fn next(&mut self, cluster: &mut Cluster) -> ClusterChange {
        match self.mix.pick(&mut self.random) {
            ChangeKind::Endpoint => self.next_endpoint(cluster),
            ChangeKind::Service => self.next_service(cluster),
            ChangeKind::Policy => self.next_policy(cluster),
        }
    }

    /// Makes a change of one endpoint of any service.
    pub fn next_endpoint(&mut self, cluster: &mut Cluster) -> ClusterChange {
        let service = self.any_service(cluster);
        self.endpoint_of(cluster, service)
    }

    /// Makes a change of one endpoint of this service.
    pub fn endpoint_of(&mut self, cluster: &mut Cluster, service: u32) -> ClusterChange {
        let original = cluster.original(service).len();
        let count = cluster.state(service).endpoints.len();
        let keeps_one = Cluster::takes_traffic(service);
        let can_remove = count > usize::from(keeps_one);
        let choice = self.random.below(3);
        let index = self.random.below(u32::try_from(count).unwrap_or(u32::MAX)) as usize;
        let (deed, slice) = match (count.cmp(&original), choice) {
            (std::cmp::Ordering::Less, _) | (std::cmp::Ordering::Equal, 0) => {
                let new = cluster.new_endpoint();
                cluster.state(service).endpoints.push(new);
                (Deed::AddEndpoint, count)
            }
            (std::cmp::Ordering::Greater, _) | (std::cmp::Ordering::Equal, 1) if can_remove => {
                // The last one: removing another would move endpoints between slices, which the
                // controller does not do either.
                cluster.state(service).endpoints.pop();
                (Deed::RemoveEndpoint, count - 1)
            }
            (std::cmp::Ordering::Equal | std::cmp::Ordering::Greater, _) => {
                let new = cluster.new_endpoint();
                if let Some(old) = cluster.state(service).endpoints.get_mut(index) {
                    *old = new;
                }
                (Deed::ReplaceEndpoint, index)
            }
        };
        let frame = cluster.slice(service, Cluster::slice_of(slice));
        ClusterChange { deed, service, frames: vec![frame] }
    }

    /// Replaces an endpoint of this service by a new one in the first zone. Returns the change and
    /// the number of the new endpoint.
    pub fn replace_in_first_zone(
        &mut self,
        cluster: &mut Cluster,
        service: u32,
    ) -> (ClusterChange, u32) {
        let mut new = cluster.new_endpoint();
        while !Cluster::is_in_first_zone(new) {
            new = cluster.new_endpoint();
        }
        let endpoints = &mut cluster.state(service).endpoints;
        match endpoints.first_mut() {
            Some(first) => *first = new,
            None => endpoints.push(new),
        }
        let frames = vec![cluster.slice(service, 0)];
        (ClusterChange { deed: Deed::ReplaceEndpoint, service, frames }, new)
    }

    /// Returns any of the initial services.
    pub fn any_service(&mut self, cluster: &Cluster) -> u32 {
        self.random.below(cluster.services())
    }

    fn next_service(&mut self, cluster: &mut Cluster) -> ClusterChange {
        let is_removal = !self.added.is_empty() && self.random.below(2) == 0;
        if is_removal {
            let index = self.random.below(u32::try_from(self.added.len()).unwrap_or(u32::MAX));
            let service = self.added.swap_remove(index as usize);
            let frames = cluster.remove(service);
            return ClusterChange { deed: Deed::RemoveService, service, frames };
        }
        let endpoints = self.random.between(1, 5);
        let change = self.add_service(cluster, endpoints);
        self.added.push(change.service);
        change
    }

    /// Returns the services that were added and not yet removed.
    pub fn added(&self) -> &[u32] {
        &self.added
    }

    /// Adds a service with `endpoints` endpoints, which is never removed.
    pub fn add_service(&mut self, cluster: &mut Cluster, endpoints: u32) -> ClusterChange {
        let service = self.next_service;
        self.next_service += 1;
        let new = (0..endpoints).map(|_| cluster.new_endpoint()).collect();
        cluster.state(service).endpoints = new;
        ClusterChange { deed: Deed::AddService, service, frames: cluster.whole(service) }
    }

    fn next_policy(&mut self, cluster: &mut Cluster) -> ClusterChange {
        let mut service = self.random.below(cluster.services());
        if Cluster::takes_traffic(service) {
            // The service before is TCP; a cluster of one service has no UDP service.
            service -= 1;
        }
        let is_external = self.random.below(2) == 0;
        let state = cluster.state(service);
        if is_external {
            state.is_external = !state.is_external;
        } else {
            state.is_local = !state.is_local;
        }
        ClusterChange { deed: Deed::ChangePolicy, service, frames: vec![cluster.service(service)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::distribution::Distribution;

    fn stream(seed: u64, length: usize) -> Vec<ClusterChange> {
        let mut cluster = Cluster::new(50, 5, Distribution::Real, 1);
        let mut changes = Changes::new(&cluster, Mix::default(), seed);
        (0..length).map(|_| changes.next(&mut cluster)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_changes() {
        assert_eq!(stream(3, 300), stream(3, 300));
        assert_ne!(stream(3, 300), stream(4, 300));
    }

    #[test]
    fn kinds_come_as_often_as_the_mix_says() {
        let changes = stream(1, 2_000);
        let count = |kind| changes.iter().filter(|change| change.deed.kind() == kind).count();
        assert!((1_740..1_860).contains(&count(ChangeKind::Endpoint)));
        assert!((110..210).contains(&count(ChangeKind::Service)));
        assert!((20..70).contains(&count(ChangeKind::Policy)));
    }

    #[test]
    fn a_cluster_stays_as_large_as_it_was() {
        let mut cluster = Cluster::new(50, 5, Distribution::Even, 1);
        let mix = Mix { endpoint: 1, service: 0, policy: 0 };
        let mut changes = Changes::new(&cluster, mix, 1);
        for _ in 0..5_000 {
            changes.next(&mut cluster);
        }
        let sizes: Vec<usize> = (0..50).map(|n| cluster.state(n).endpoints.len()).collect();
        assert!(sizes.iter().all(|size| (4..=6).contains(size)), "{sizes:?}");
    }

    #[test]
    fn services_that_take_traffic_keep_an_endpoint_and_their_policy() {
        let mut cluster = Cluster::new(50, 1, Distribution::Even, 1);
        let mix = Mix { endpoint: 1, service: 0, policy: 1 };
        let mut changes = Changes::new(&cluster, mix, 1);
        for _ in 0..5_000 {
            let change = changes.next(&mut cluster);
            if Cluster::takes_traffic(change.service) {
                let state = cluster.state(change.service);
                assert!(!state.endpoints.is_empty() && !state.is_local);
            }
        }
    }

    #[test]
    fn a_mix_is_read_and_a_wrong_one_is_named() {
        assert_eq!("endpoint=90,service=8,policy=2".parse(), Ok(Mix::default()));
        let only = Mix { endpoint: 0, service: 1, policy: 0 };
        assert_eq!("service=1".parse(), Ok(only));
        assert_eq!("endpoint".parse::<Mix>(), Err(MixError::Part("endpoint".into())));
        assert_eq!("pod=1".parse::<Mix>(), Err(MixError::Part("pod=1".into())));
        assert_eq!("policy=0".parse::<Mix>(), Err(MixError::Nothing));
    }
}
