//! Endpoints that are in no EndpointSlice any more, and whose connections are to end.
//!
//! Each endpoint of TCP is counted in the slices of all services, so that one that a service loses
//! is ended only if no other has it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ahash::HashMap;
use nft::family::Family;

use super::name::ObjectName;
use super::protocol::Protocol;
use super::service::EndedConnections;
use super::stored::{StoredService, StoredSlice};
use super::target::Target;

/// The settings of ended connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSettings {
    /// Services that do not say it by their annotation let connections end.
    pub by_default: bool,
    /// Time for which an ended endpoint is remembered.
    pub remember: Duration,
}

/// Ended endpoints of one namespace, at most: half of [`MOST`], so that one namespace leaves room for
/// others.
const MOST_OF_NAMESPACE: usize = MOST / 2;

/// Ended endpoints, at most: some 20 MB in the kernel.
const MOST: usize = 1 << 16;

/// Endpoints of TCP in the slices of all services, and the ended ones.
#[derive(Debug)]
pub struct EndedEndpoints {
    settings: EndedSettings,
    users: HashMap<Target, Users>,
    ended: HashMap<Target, Remembered>,
    /// Those that ended since the last call of `note_time`, with the time until they are forgotten.
    new: Vec<(Target, Duration)>,
    /// The others, in the order in which they are forgotten.
    order: BTreeSet<(Instant, Target)>,
    /// Number of the ended endpoints of each namespace.
    of_namespace: HashMap<Box<str>, usize>,
    /// Number of those of each family, by [`Family::index`].
    of_family: [usize; 2],
    /// Endpoints that ended, returned or were forgotten since the last call of `take_changed`.
    changed: Vec<Target>,
    /// The tables were read once.
    has_adopted: bool,
}

/// The slices with an endpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    slices: u32,
    /// What the services that have lost it ask for its connections. One that keeps them wins.
    choice: Option<EndedConnections>,
}

/// An ended endpoint.
#[derive(Debug)]
struct Remembered {
    /// The service that had it last; `None` if an earlier process saw it end.
    service: Option<ObjectName>,
    /// When it is forgotten; `None` until the next call of `note_time`.
    due: Option<Instant>,
}

impl EndedSettings {
    /// Time after which the kernel forgets an ended endpoint by itself: a killed daemon does not. The
    /// daemon deletes it earlier.
    pub const fn timeout(&self) -> Duration {
        self.remember.saturating_add(MARGIN)
    }
}

/// A daemon that was stopped for longer finds elements gone that it deletes, and reads the tables.
const MARGIN: Duration = Duration::from_secs(60);

impl EndedEndpoints {
    /// Returns no endpoints.
    pub fn new(settings: EndedSettings) -> Self {
        Self {
            settings,
            users: HashMap::default(),
            ended: HashMap::default(),
            new: Vec::new(),
            order: BTreeSet::new(),
            of_namespace: HashMap::default(),
            of_family: [0; 2],
            changed: Vec::new(),
            has_adopted: false,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &EndedSettings {
        &self.settings
    }

    /// Returns what becomes of connections of a service; `None` if that is left to others.
    pub(super) fn choice(&self, service: &StoredService) -> Option<EndedConnections> {
        let by_default = self.settings.by_default.then_some(EndedConnections::Reset);
        service.ended_connections().or(by_default)
    }

    /// Replaces a slice; `None` for no slice. The endpoints that no slice has any more end if
    /// `service`, which had the slice, makes this choice.
    pub(super) fn replace(
        &mut self,
        (old, new): (Option<&StoredSlice>, Option<&StoredSlice>),
        (service, choice): (&ObjectName, Option<EndedConnections>),
    ) {
        let [had, has] = [old, new].map(targets);
        for target in has.difference(&had) {
            self.users.entry(*target).or_default().slices += 1;
            self.forget(*target);
        }
        for target in had.difference(&has) {
            let Some(users) = self.users.get_mut(target) else { continue };
            users.slices = users.slices.saturating_sub(1);
            if users.choice != Some(EndedConnections::Keep) {
                users.choice = choice.or(users.choice);
            }
            if users.slices == 0 {
                let ends = users.choice == Some(EndedConnections::Reset);
                self.users.remove(target);
                if ends {
                    self.end(*target, service);
                }
            }
        }
    }

    fn end(&mut self, target: Target, service: &ObjectName) {
        let of_namespace = self.of_namespace.get(service.namespace()).copied().unwrap_or(0);
        if self.ended.len() < MOST && of_namespace < MOST_OF_NAMESPACE {
            self.of_namespace.insert(service.namespace().into(), of_namespace + 1);
            self.insert(target, Some(service.clone()), self.settings.remember);
        }
    }

    fn insert(&mut self, target: Target, service: Option<ObjectName>, time: Duration) {
        self.ended.insert(target, Remembered { service, due: None });
        self.of_family[Family::of(target.address).index()] += 1;
        self.new.push((target, time));
        self.changed.push(target);
    }

    fn forget(&mut self, target: Target) {
        let Some(Remembered { service, due }) = self.ended.remove(&target) else { return };
        self.changed.push(target);
        self.of_family[Family::of(target.address).index()] -= 1;
        if let Some(due) = due {
            self.order.remove(&(due, target));
        }
        let Some(service) = service else { return };
        if let Some(count) = self.of_namespace.get_mut(service.namespace()) {
            *count -= 1;
            if *count == 0 {
                self.of_namespace.remove(service.namespace());
            }
        }
    }

    /// Adopts the ended endpoints that an earlier process left, with the time after which the kernel
    /// forgets each. Only the first call does so: later, this process knows what has ended.
    pub(crate) fn adopt<'a>(&mut self, found: impl Iterator<Item = &'a (Target, Duration)>) {
        if std::mem::replace(&mut self.has_adopted, true) {
            return;
        }
        for (target, left) in found {
            if !self.users.contains_key(target) && !self.ended.contains_key(target) {
                self.insert(*target, None, left.saturating_sub(MARGIN));
            }
        }
    }

    /// Sets the time, and forgets the endpoints that are due.
    pub(crate) fn note_time(&mut self, now: Instant) {
        for (target, time) in std::mem::take(&mut self.new) {
            if let Some(ended) = self.ended.get_mut(&target).filter(|ended| ended.due.is_none()) {
                ended.due = Some(now + time);
                self.order.insert((now + time, target));
            }
        }
        while let Some((due, target)) = self.order.first().copied()
            && due <= now
        {
            self.forget(target);
        }
    }

    /// Returns when the next endpoint is forgotten.
    pub fn due(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Returns whether connections to an endpoint are to end.
    pub(crate) fn contains(&self, target: &Target) -> bool {
        self.ended.contains_key(target)
    }

    /// Returns the service that had an ended endpoint last, if this process saw it end.
    pub(crate) fn service(&self, target: &Target) -> Option<&ObjectName> {
        self.ended.get(target)?.service.as_ref()
    }

    /// Returns whether an endpoint of this family is ended.
    pub(crate) fn has(&self, family: Family) -> bool {
        self.of_family[family.index()] > 0
    }

    /// Returns the endpoints that ended, returned or were forgotten since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Target> {
        std::mem::take(&mut self.changed)
    }
}

/// Returns the endpoints of TCP: no rule of nftables ends connections of other protocols.
fn targets(slice: Option<&StoredSlice>) -> BTreeSet<Target> {
    let Some(slice) = slice else { return BTreeSet::new() };
    let ports = slice.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
    let targets = ports.flat_map(|port| {
        slice.endpoints.iter().map(|it| Target { address: it.address, port: port.port })
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::{
        Change, Cluster, Endpoint, EndpointPort, EndpointSlice, Event, Resource, Service, Touched,
    };

    const REMEMBER: Duration = Duration::from_secs(900);

    fn target(number: u32) -> Target {
        let address = IpAddr::from(Ipv4Addr::from(0x0af4_0000 + number));
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn slice(namespace: &str, endpoints: std::ops::Range<u32>) -> Event {
        let port = EndpointPort::tcp("http", target(0).port);
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: ObjectName::namespaced(namespace, "web-1"),
            service: ObjectName::namespaced(namespace, "web"),
            ports: vec![EndpointPort { protocol: Protocol::Udp, ..port.clone() }, port].into(),
            endpoints: endpoints.map(|it| Endpoint::ready(target(it).address)).collect(),
            triggered: None,
            weighing: None,
        }))
    }

    /// A cluster with service `web` in two namespaces, where connections end by default.
    fn cluster(events: impl IntoIterator<Item = Event>) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.end_connections(EndedSettings { by_default: true, remember: REMEMBER });
        let service = |namespace| {
            let name = ObjectName::namespaced(namespace, "web");
            Event::Service(Change::Is(Service::new(name, vec![[10, 96, 0, 1].into()])))
        };
        apply(&mut cluster, ["one", "two"].map(service));
        apply(&mut cluster, events);
        apply(&mut cluster, Resource::ALL.map(Event::Listed));
        cluster
    }

    fn apply(cluster: &mut Cluster, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| cluster.apply(event, &mut Touched::default()));
    }

    fn ended(cluster: &Cluster) -> Vec<Target> {
        let mut ended: Vec<_> = cluster.ended().unwrap().ended.keys().copied().collect();
        ended.sort_unstable();
        ended
    }

    #[test]
    fn an_endpoint_ends_with_the_last_slice_that_has_it() {
        let mut cluster = cluster([slice("one", 0..3), slice("two", 2..5)]);
        apply(&mut cluster, [slice("one", 1..2)]);
        assert_eq!(ended(&cluster), [target(0)]);
        apply(&mut cluster, [slice("two", 3..4)]);
        assert_eq!(ended(&cluster), [0, 2, 4].map(target));
        let gone = Event::EndpointSlice(Change::Gone(ObjectName::namespaced("one", "web-1")));
        apply(&mut cluster, [gone, slice("two", 4..5)]);
        assert_eq!(ended(&cluster), [0, 1, 2, 3].map(target));
    }

    /// What it said while the slice only changed does not count.
    #[test]
    fn the_annotation_counts_when_the_endpoint_goes() {
        let with = |ended_connections| {
            let name = ObjectName::namespaced("one", "web");
            let service = Service::new(name, vec![[10, 96, 0, 1].into()]);
            Event::Service(Change::Is(Service { ended_connections, ..service }))
        };
        let (keep, reset) = (Some(EndedConnections::Keep), Some(EndedConnections::Reset));
        for (before, at_the_end, ends) in
            [(keep, reset, true), (keep, None, true), (reset, keep, false)]
        {
            let mut cluster = cluster([with(before), slice("one", 0..2)]);
            apply(&mut cluster, [slice("one", 0..3), with(at_the_end), slice("one", 1..3)]);
            assert_eq!(ended(&cluster).len(), usize::from(ends), "{before:?} {at_the_end:?}");
        }
    }

    #[test]
    fn what_the_first_lists_lack_has_not_ended() {
        let cluster = cluster([slice("one", 0..3), slice("one", 0..1)]);
        assert_eq!(ended(&cluster), []);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the first time is any time")]
    fn an_endpoint_is_forgotten_when_it_returns_or_after_its_time() {
        let mut cluster = cluster([slice("one", 0..3)]);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        apply(&mut cluster, [slice("one", 1..3)]);
        cluster.ended_mut().unwrap().note_time(start);
        apply(&mut cluster, [slice("one", 2..3)]);
        let known = cluster.ended_mut().unwrap();
        known.note_time(after(10));
        // One that an earlier process left, and one that has come back.
        known.adopt([(target(7), REMEMBER / 2 + MARGIN), (target(2), REMEMBER)].iter());
        known.adopt([(target(8), REMEMBER)].iter());
        known.note_time(after(10));
        assert_eq!(known.due(), Some(after(460)));
        let mut changed = known.take_changed();
        changed.sort_unstable();
        assert_eq!(changed, [0, 1, 7].map(target));
        for (time, left) in [(459, vec![0, 1, 7]), (460, vec![0, 1]), (900, vec![1])] {
            cluster.ended_mut().unwrap().note_time(after(time));
            let left: Vec<_> = left.into_iter().map(target).collect();
            assert_eq!(ended(&cluster), left, "after {time} s");
        }
        apply(&mut cluster, [slice("one", 1..3)]);
        let known = cluster.ended_mut().unwrap();
        known.note_time(after(2_000));
        assert_eq!((known.due(), known.has(Family::Ip)), (None, false));
        assert_eq!(known.take_changed(), [7, 0, 1].map(target));
        assert!(known.of_namespace.is_empty());
    }

    #[test]
    fn one_namespace_leaves_room_for_others() {
        let most = u32::try_from(MOST_OF_NAMESPACE).unwrap();
        let mut cluster = cluster([slice("one", 0..most + 9), slice("two", most + 9..most + 19)]);
        apply(&mut cluster, [slice("one", 0..0), slice("two", 0..0)]);
        let ended = ended(&cluster);
        assert_eq!(ended.len(), MOST_OF_NAMESPACE + 10);
        assert_eq!(ended.iter().filter(|it| **it >= target(most + 9)).count(), 10);
    }
}
