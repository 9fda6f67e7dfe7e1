//! A stream of random changes of a synthetic cluster, decided by a seed.
//!
//! Every change alters what the kernel has to hold, and the cluster stays about as large as it was:
//! what is added more than it had at first is taken away again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::random::Random;
use super::watch_line::WatchLine;

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// One endpoint comes, goes or is replaced by another.
    Endpoint,
    /// A service comes with its endpoints, or goes.
    Service,
    /// A service changes its internal traffic policy, or has an external IP or not.
    Policy,
}

impl ChangeKind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Endpoint, Self::Service, Self::Policy];

    /// The word for it in `--mix`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Service => "service",
            Self::Policy => "policy",
        }
    }
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// An endpoint comes.
    AddEndpoint,
    /// An endpoint goes.
    RemoveEndpoint,
    /// An endpoint goes and another comes.
    ReplaceEndpoint,
    /// A service comes with its endpoints.
    AddService,
    /// A service goes with its endpoints.
    RemoveService,
    /// A service changes its policy or has an external IP or not.
    ChangePolicy,
}

impl Deed {
    /// What kind of change it is.
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

/// How many of all changes are of each kind, as weights.
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

/// A mix that cannot be read.
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

/// One change, as the API server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it does.
    pub deed: Deed,
    /// The service that changes.
    pub service: u32,
    /// The lines of the watches.
    pub lines: Vec<WatchLine>,
}

/// Changes one after the other, without end.
#[derive(Clone, Debug)]
pub struct Changes {
    random: Random,
    mix: Mix,
    /// Services that were added and are still there.
    added: Vec<u32>,
    next_service: u32,
}

impl Changes {
    /// Changes that depend on the seed and the cluster alone.
    pub fn new(cluster: &Cluster, mix: Mix, seed: u64) -> Self {
        // Another stream than the one that spread the endpoints.
        let random = Random::new(seed ^ 0x6368_616e_6765_7300);
        Self { random, mix, added: Vec::new(), next_service: cluster.services() }
    }

    /// The next change, which is made in `cluster`.
    pub fn next(&mut self, cluster: &mut Cluster) -> Change {
        match self.mix.pick(&mut self.random) {
            ChangeKind::Endpoint => self.next_endpoint(cluster),
            ChangeKind::Service => self.next_service(cluster),
            ChangeKind::Policy => self.next_policy(cluster),
        }
    }

    /// A change of one endpoint of any service.
    pub fn next_endpoint(&mut self, cluster: &mut Cluster) -> Change {
        let service = self.any_service(cluster);
        self.endpoint_of(cluster, service)
    }

    /// A change of one endpoint of this service.
    pub fn endpoint_of(&mut self, cluster: &mut Cluster, service: u32) -> Change {
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
        let line = cluster.slice(service, Cluster::slice_of(slice));
        Change { deed, service, lines: vec![line] }
    }

    /// An endpoint of this service is replaced by one that was never there, in the first zone; its
    /// number comes too.
    pub fn replace_in_first_zone(&mut self, cluster: &mut Cluster, service: u32) -> (Change, u32) {
        let mut new = cluster.new_endpoint();
        while !Cluster::is_in_first_zone(new) {
            new = cluster.new_endpoint();
        }
        let endpoints = &mut cluster.state(service).endpoints;
        match endpoints.first_mut() {
            Some(first) => *first = new,
            None => endpoints.push(new),
        }
        let lines = vec![cluster.slice(service, 0)];
        (Change { deed: Deed::ReplaceEndpoint, service, lines }, new)
    }

    /// A service that was there at first.
    pub fn any_service(&mut self, cluster: &Cluster) -> u32 {
        self.random.below(cluster.services())
    }

    fn next_service(&mut self, cluster: &mut Cluster) -> Change {
        let is_removal = !self.added.is_empty() && self.random.below(2) == 0;
        if is_removal {
            let index = self.random.below(u32::try_from(self.added.len()).unwrap_or(u32::MAX));
            let service = self.added.swap_remove(index as usize);
            let lines = cluster.remove(service);
            return Change { deed: Deed::RemoveService, service, lines };
        }
        let endpoints = self.random.between(1, 5);
        let change = self.add_service(cluster, endpoints);
        self.added.push(change.service);
        change
    }

    /// Services that these changes have added and that are still there.
    pub fn added(&self) -> &[u32] {
        &self.added
    }

    /// A service with so many endpoints comes, and is not among those that go again.
    pub fn add_service(&mut self, cluster: &mut Cluster, endpoints: u32) -> Change {
        let service = self.next_service;
        self.next_service += 1;
        let new = (0..endpoints).map(|_| cluster.new_endpoint()).collect();
        cluster.state(service).endpoints = new;
        Change { deed: Deed::AddService, service, lines: cluster.whole(service) }
    }

    fn next_policy(&mut self, cluster: &mut Cluster) -> Change {
        let mut service = self.random.below(cluster.services());
        if Cluster::takes_traffic(service) {
            // Its neighbour is TCP; a cluster of one service has none that is UDP.
            service -= 1;
        }
        let is_external = self.random.below(2) == 0;
        let state = cluster.state(service);
        if is_external {
            state.is_external = !state.is_external;
        } else {
            state.is_local = !state.is_local;
        }
        Change { deed: Deed::ChangePolicy, service, lines: vec![cluster.service(service)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::distribution::Distribution;

    fn stream(seed: u64, length: usize) -> Vec<Change> {
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
