//! The objects of the cluster that this node needs, updated by events.
//!
//! An event costs in proportion to what it touches. Only a relist, a change of this node's zone or
//! addresses and a change of the service address ranges iterate over more than one service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ahash::HashMap;
use ipnet::IpNet;
use nft::family::Family;

use super::balanced::Balanced;
use super::ended_endpoints::{EndedEndpoints, EndedSettings};
use super::entry::{Entry, ListedObject, mark};
use super::event::{Change, Event, Problem, Resource};
use super::external_addresses::{ExternalAddresses, Internal};
use super::name::ObjectName;
use super::node::{Node, Peer, ServiceCidr};
use super::peers::Peers;
use super::prefix_lengths::{PrefixLengths, UsedLengths, of_port_ranges, of_source_ranges};
use super::scheduler::Scheduler;
use super::service::Service;
use super::service_view::{Handed, ServiceView};
use super::slice_names::SliceNames;
use super::slices_in_service_cidrs::SlicesInServiceCidrs;
use super::stored::{SharedLists, StoredService};
use super::touched::{Extent, Touched};

/// All objects that routing depends on.
#[derive(Debug, Default)]
pub struct Cluster {
    pub(super) services: HashMap<ObjectName, Box<Entry>>,
    pub(super) lists: SharedLists,
    pub(super) slice_names: SliceNames,
    pub(super) needs: ChainNeeds,
    node: Option<OwnNode>,
    peers: Peers,
    service_cidrs: HashMap<ObjectName, ListedObject<Vec<IpNet>>>,
    external: External,
    listings: [Listing; Resource::ALL.len()],
    pub(super) balanced: Balanced,
    /// What direct return makes of the services that have it on.
    handed: HashMap<ObjectName, Handed>,
}

/// What the optional chains depend on.
#[derive(Debug, Default)]
pub(super) struct ChainNeeds {
    pub(super) slices_in_service_cidrs: SlicesInServiceCidrs,
    source_lengths: UsedLengths,
    port_lengths: UsedLengths,
    /// `None` while all connections are kept.
    pub(super) ended: Option<Box<EndedEndpoints>>,
}

/// This node's object.
#[derive(Debug)]
struct OwnNode {
    object: Node,
    /// The last listing that contained it; `None` once it was deleted. It stays in force.
    listing: Option<u32>,
}

/// The limits of external addresses.
#[derive(Debug, Default)]
struct External {
    addresses: ExternalAddresses,
    /// Pod ranges from the settings.
    pod_ranges: Vec<IpNet>,
}

/// Progress of the listing of a resource.
#[derive(Debug, Default, Clone, Copy)]
struct Listing {
    number: u32,
    complete_once: bool,
}

impl Cluster {
    /// Limits the external addresses of services; `pod_ranges` are those of the settings.
    pub fn restrict_external(&mut self, addresses: ExternalAddresses, pod_ranges: Vec<IpNet>) {
        self.external = External { addresses, pod_ranges };
    }

    /// Lets connections end whose endpoints are gone. To be called before the first event.
    pub fn end_connections(&mut self, settings: EndedSettings) {
        self.needs.ended = Some(Box::new(EndedEndpoints::new(settings)));
    }

    /// Returns the ended endpoints; `None` while all connections are kept.
    pub fn ended(&self) -> Option<&EndedEndpoints> {
        self.needs.ended.as_deref()
    }

    pub(crate) fn ended_mut(&mut self) -> Option<&mut EndedEndpoints> {
        self.needs.ended.as_deref_mut()
    }

    /// Applies one event and adds to `touched` what must be rendered again.
    pub fn apply(&mut self, event: Event, touched: &mut Touched) {
        match event {
            Event::Service(change) => self.apply_service(change, touched),
            Event::EndpointSlice(change) => self.apply_slice(change, touched),
            Event::Node(change) => self.apply_node(change, touched),
            Event::Peer(change) => {
                let listing = self.listing(Resource::Nodes);
                touched.peers |= self.peers.apply(change, listing);
            }
            Event::ServiceCidr(change) => self.apply_service_cidr(change, touched),
            Event::Relist(resource) => self.listings[resource as usize].number += 1,
            Event::Listed(resource) => {
                self.listings[resource as usize].complete_once = true;
                self.sweep(resource, touched);
            }
        }
    }

    /// Returns whether every resource has been listed completely at least once. A list may be
    /// empty.
    ///
    /// Before that, a commit would delete services that are not listed yet. It would also delete
    /// what depends on the node (NodePort addresses, zone, pod ranges) and the rules of the service
    /// address ranges.
    pub fn is_listed(&self) -> bool {
        self.unlisted().next().is_none()
    }

    /// Returns the resources that have not been listed completely yet.
    pub fn unlisted(&self) -> impl Iterator<Item = Resource> + '_ {
        let listing = |resource: Resource| self.listings[resource as usize];
        Resource::ALL.into_iter().filter(move |resource| !listing(*resource).complete_once)
    }

    /// Returns the number of the current listing of a resource.
    pub(super) fn listing(&self, resource: Resource) -> u32 {
        self.listings[resource as usize].number
    }

    /// Returns the routed service of this name.
    pub fn service(&self, name: &ObjectName) -> Option<ServiceView<'_>> {
        let (name, entry) = self.services.get_key_value(name)?;
        let mut service = entry.service.as_ref()?.restore(name.clone());
        let refused = self.refuse_external(&mut service);
        let is_balanced = service.scheduler == Some(Scheduler::LeastConnections);
        let shares = is_balanced.then(|| self.balanced.shares(name)).flatten();
        let (slices, node, handed) = (&entry.slices, self.node(), self.handed.get(name));
        Some(ServiceView { service, refused, slices, node, shares, handed })
    }

    /// Removes the external addresses that the service may not have; returns their problems.
    fn refuse_external(&self, service: &mut Service) -> Vec<Problem> {
        let settings = &self.external.addresses;
        let has_none = service.external_ips.is_empty() && service.load_balancer_ips.is_empty();
        if has_none || (settings.allowed.is_empty() && !settings.refuse_internal) {
            return Vec::new();
        }
        let service_cidrs =
            if settings.refuse_internal { self.service_cidrs() } else { Vec::new() };
        let (node, pod_ranges) = (self.node(), &self.external.pod_ranges[..]);
        settings.restrict(service, &Internal { node, service_cidrs: &service_cidrs, pod_ranges })
    }

    /// Records what direct return makes of a service. The service must be rendered again.
    pub fn hand(&mut self, service: ObjectName, handed: Option<Handed>) {
        match handed {
            Some(handed) => self.handed.insert(service, handed),
            None => self.handed.remove(&service),
        };
    }

    /// Forgets what direct return makes of services. These must be rendered again.
    pub(crate) fn forget_handed(&mut self) {
        self.handed.clear();
    }

    /// Returns whether direct return makes something of a service.
    pub fn has_direct_return(&self, service: &ObjectName) -> bool {
        self.handed.contains_key(service)
    }

    /// Returns the cluster IPs of a routed service.
    pub fn cluster_ips(&self, name: &ObjectName) -> Vec<IpAddr> {
        self.service(name).map(|view| view.service.cluster_ips).unwrap_or_default()
    }

    /// Returns the ranges of each ServiceCIDR, in no order.
    pub(super) fn service_ranges(&self) -> impl Iterator<Item = (&ObjectName, &Vec<IpNet>)> {
        self.service_cidrs.iter().map(|(name, marked)| (name, &marked.object))
    }

    /// Returns the ranges of pods that are known: those of the settings and of this node.
    pub(super) fn pod_ranges(&self) -> impl Iterator<Item = &IpNet> {
        let of_node = self.node().into_iter().flat_map(|node| &node.pod_cidrs);
        self.external.pod_ranges.iter().chain(of_node)
    }

    /// Returns the prefix lengths of the source ranges of all services.
    pub fn source_lengths(&self, family: Family) -> PrefixLengths {
        self.needs.source_lengths.of(family)
    }

    /// Returns the lengths of the blocks of the port ranges of all services.
    pub fn port_lengths(&self, family: Family) -> PrefixLengths {
        self.needs.port_lengths.of(family)
    }

    /// Returns whether an endpoint may be a cluster IP.
    pub fn may_have_cluster_ip_endpoints(&self) -> bool {
        self.needs.slices_in_service_cidrs.may_have_cluster_ips()
    }

    /// Returns this node's object, if it has arrived.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref().map(|own| &own.object)
    }

    /// Returns whether this node's object was deleted; its content stays in force.
    pub fn is_node_deleted(&self) -> bool {
        self.node.as_ref().is_some_and(|own| own.listing.is_none())
    }

    /// Returns the other nodes, without addresses that others claim too; none unless direct return
    /// is on.
    pub fn peers(&self) -> &BTreeMap<ObjectName, Peer> {
        self.peers.usable()
    }

    /// Returns a problem for each claim of a node to an address that another one claims too.
    pub fn contested_addresses(&self) -> &[Problem] {
        self.peers.contested()
    }

    /// Returns all ranges that cluster IPs are allocated from, sorted and without duplicates.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        let objects = self.service_cidrs.values();
        let mut cidrs: Vec<_> = objects.flat_map(|marked| &marked.object).copied().collect();
        cidrs.sort_unstable();
        cidrs.dedup();
        cidrs
    }

    fn apply_service(&mut self, change: Change<Service>, touched: &mut Touched) {
        let listing = self.listing(Resource::Services);
        match change {
            Change::Is(service) => {
                let name = service.name.clone();
                self.balanced.note(&name, service.scheduler);
                let entry = self.services.entry(name.clone()).or_default();
                let stored = StoredService::new(service, listing, &mut self.lists);
                let node = self.node.as_ref().map(|own| &own.object);
                self.needs.source_lengths.set(&name, of_source_ranges(&stored, node));
                self.needs.port_lengths.set(&name, of_port_ranges(&stored));
                match &mut entry.service {
                    Some(known) if known.is_same(&stored) => known.listing = listing,
                    known => {
                        *known = Some(stored);
                        touched.add(name, Extent::Whole);
                    }
                }
            }
            Change::Invalid(name) => {
                let entry = self.services.get_mut(&name);
                if let Some(service) = entry.and_then(|entry| entry.service.as_mut()) {
                    service.listing = listing;
                }
            }
            Change::Gone(name) => self.remove_service(&name, touched),
        }
    }

    fn remove_service(&mut self, name: &ObjectName, touched: &mut Touched) {
        self.balanced.note(name, None);
        let Some(entry) = self.services.get_mut(name) else { return };
        self.needs.source_lengths.set(name, [PrefixLengths::default(); 2]);
        self.needs.port_lengths.set(name, [PrefixLengths::default(); 2]);
        if entry.service.take().is_some() {
            touched.add(name.clone(), Extent::Whole);
        }
        if entry.slices.is_empty() {
            self.services.remove(name);
        }
    }

    fn apply_node(&mut self, change: Change<Node>, touched: &mut Touched) {
        // This node exists as long as it routes packets, so its last object stays in force (as in
        // kube-proxy).
        let is_gone = matches!(change, Change::Gone(_));
        let listing = (!is_gone).then_some(self.listing(Resource::Nodes));
        self.node.iter_mut().for_each(|own| own.listing = listing);
        let Change::Is(node) = change else { return };
        let former = self.node.as_ref().map(|own| &own.object);
        touched.node |= former != Some(&node);
        let other_zone = former.and_then(|former| former.zone.as_ref()) != node.zone.as_ref();
        let other_addresses = former.is_none_or(|former| former.addresses != node.addresses);
        let other_ranges = former.is_none_or(|former| former.pod_cidrs != node.pod_cidrs);
        let refuses = self.external.addresses.refuse_internal && (other_addresses || other_ranges);
        let depends = |entry: &Entry| {
            (other_zone && entry.has_zone_hints())
                || (other_addresses && entry.has(StoredService::has_source_ranges))
                || (refuses && entry.has(StoredService::has_external_addresses))
        };
        let depending = self.services.iter().filter(|(_, entry)| depends(entry));
        touched.dependents.extend(depending.map(|(name, _)| name.clone()));
        if other_addresses {
            let guarded =
                self.services.iter().filter_map(|(name, it)| Some((name, it.service.as_ref()?)));
            for (name, service) in guarded.filter(|(_, it)| it.has_source_ranges()) {
                self.needs.source_lengths.set(name, of_source_ranges(service, Some(&node)));
            }
        }
        self.node = Some(OwnNode { object: node, listing });
    }

    fn apply_service_cidr(&mut self, change: Change<ServiceCidr>, touched: &mut Touched) {
        let listing = self.listing(Resource::ServiceCidrs);
        match change {
            Change::Is(ServiceCidr { name, cidrs }) => {
                let marked = ListedObject { object: cidrs.clone(), listing };
                let former = self.service_cidrs.insert(name, marked);
                touched.service_cidrs |= former.is_none_or(|former| former.object != cidrs);
            }
            Change::Invalid(name) => mark(self.service_cidrs.get_mut(&name), listing),
            Change::Gone(name) => {
                touched.service_cidrs |= self.service_cidrs.remove(&name).is_some();
            }
        }
    }

    /// Completes a series of events: finds contested addresses of nodes, and what depends on the
    /// service address ranges, where these changed. To be called once for all events, as it iterates
    /// over all nodes and endpoints.
    pub fn complete(&mut self, touched: &mut Touched) {
        if touched.peers || touched.node {
            self.peers.settle(self.node.as_ref().map(|own| &own.object));
        }
        if !touched.service_cidrs {
            return;
        }
        self.find_slices_in_service_cidrs();
        if self.external.addresses.refuse_internal {
            let depending = self.routed().filter(|(_, it)| it.has_external_addresses());
            touched.dependents.extend(depending.map(|(name, _)| name.clone()));
        }
    }

    /// Removes the objects that the completed listing did not contain.
    fn sweep(&mut self, resource: Resource, touched: &mut Touched) {
        let number = self.listing(resource);
        match resource {
            Resource::Services => {
                let missing = |entry: &Entry| {
                    entry.service.as_ref().is_some_and(|service| service.listing != number)
                };
                let gone = self.services.iter().filter(|(_, entry)| missing(entry));
                for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                    self.remove_service(&name, touched);
                }
            }
            Resource::EndpointSlices => {
                for name in self.slices_not_in(number) {
                    self.remove_slice(&name, touched);
                }
            }
            Resource::Nodes => {
                if let Some(own) = &mut self.node {
                    own.listing = own.listing.filter(|listing| *listing == number);
                }
                touched.peers |= self.peers.sweep(number);
            }
            Resource::ServiceCidrs => {
                let before = self.service_cidrs.len();
                self.service_cidrs.retain(|_, cidr| cidr.listing == number);
                touched.service_cidrs |= self.service_cidrs.len() != before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::model::{Endpoint, EndpointSlice, Endpoints};

    fn name(name: &str) -> ObjectName {
        ObjectName::namespaced("default", name)
    }

    fn service(service: &str, cluster_ip: [u8; 4]) -> Event {
        Event::Service(Change::Is(Service::new(name(service), vec![cluster_ip.into()])))
    }

    fn slice(slice: &str, service: &str, zone: Option<&str>) -> Event {
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: name(slice),
            service: name(service),
            ports: Default::default(),
            endpoints: Endpoints::from_iter([Endpoint {
                zones: zone.map(|zone| Arc::new(vec![zone.into()])),
                ..Endpoint::ready([10, 0, 0, 1].into())
            }]),
            triggered: None,
            weighing: None,
        }))
    }

    fn node(zone: &str) -> Event {
        Event::Node(Change::Is(Node {
            name: ObjectName::cluster_scoped("node"),
            zone: Some(zone.into()),
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            leaving: false,
        }))
    }

    /// Returns the cluster, and checks the names that `events` touch after `before` was applied.
    #[track_caller]
    fn check(before: Vec<Event>, events: Vec<Event>, touched: &[&str]) -> Cluster {
        let mut cluster = Cluster::default();
        before.into_iter().for_each(|event| cluster.apply(event, &mut Touched::default()));
        let mut found = Touched::default();
        events.into_iter().for_each(|event| cluster.apply(event, &mut found));
        let names = found.services.keys().chain(&found.dependents);
        let mut names: Vec<_> = names.map(ObjectName::as_str).collect();
        names.sort_unstable();
        let expected: Vec<_> = touched.iter().map(|name| format!("default/{name}")).collect();
        assert_eq!(names, expected);
        cluster
    }

    #[test]
    fn an_update_that_changes_nothing_touches_nothing() {
        let objects = || vec![service("web", [10, 96, 0, 1]), slice("web-1", "web", None)];
        check(objects(), objects(), &[]);
    }

    #[test]
    fn refused_addresses_depend_on_the_node_and_the_service_ranges() {
        let web = || {
            let service = Service::new(name("web"), vec![[10, 96, 0, 1].into()]);
            let external_ips = vec![[192, 0, 2, 1].into(), [10, 97, 0, 1].into()];
            Event::Service(Change::Is(Service { external_ips, ..service }))
        };
        let node_at = |address: [u8; 4]| {
            let Event::Node(Change::Is(node)) = node("a") else { unreachable!("it is a node") };
            Event::Node(Change::Is(Node { addresses: vec![address.into()], ..node }))
        };
        let service_cidr = Event::ServiceCidr(Change::Is(ServiceCidr {
            name: ObjectName::cluster_scoped("second"),
            cidrs: vec!["10.97.0.0/16".parse().unwrap()],
        }));
        for (refuse_internal, left) in [(true, [2, 1, 2, 1]), (false, [2; 4])] {
            let mut cluster = Cluster::default();
            let settings = ExternalAddresses { refuse_internal, ..ExternalAddresses::default() };
            cluster.restrict_external(settings, Vec::new());
            let before = [service("plain", [10, 96, 0, 2]), web(), node_at([10, 0, 0, 1])];
            before.into_iter().for_each(|event| cluster.apply(event, &mut Touched::default()));
            let gone = Event::Node(Change::Gone(ObjectName::cluster_scoped("node")));
            let events =
                [gone, node_at([192, 0, 2, 1]), node_at([10, 0, 0, 1]), service_cidr.clone()];
            for (i, (event, left)) in events.into_iter().zip(left).enumerate() {
                let mut touched = Touched::default();
                cluster.apply(event, &mut touched);
                cluster.complete(&mut touched);
                let view = cluster.service(&name("web")).unwrap();
                assert_eq!(view.service.external_ips.len(), left, "{i}");
                assert_eq!(view.refused.len(), 2 - left, "{i}");
                let is_rendered_again = touched.dependents == [name("web")];
                assert_eq!(is_rendered_again, refuse_internal && i > 0, "{i}");
            }
        }
    }

    #[test]
    fn the_trigger_time_of_a_changed_slice_is_reported_once() {
        let (mut cluster, mut touched) = (Cluster::default(), Touched::default());
        let Event::EndpointSlice(Change::Is(mut slice)) = slice("web-1", "web", None) else {
            unreachable!("it is a slice")
        };
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // Listed again, the slice does not change; a change may lack a time.
        for (seconds, endpoints) in [(Some(1), 1), (Some(1), 1), (None, 0), (Some(3), 1)] {
            slice.triggered = seconds.map(time);
            let endpoints =
                if endpoints == 0 { Endpoints::from_iter([]) } else { slice.endpoints.clone() };
            let slice = EndpointSlice { endpoints, ..slice.clone() };
            cluster.apply(Event::EndpointSlice(Change::Is(slice)), &mut touched);
        }
        assert_eq!(touched.triggers, [time(1), time(3)]);
    }

    #[test]
    fn a_slice_touches_its_service_only() {
        let before = vec![service("web", [10, 96, 0, 1]), service("dns", [10, 96, 0, 2])];
        check(before, vec![slice("web-1", "web", None)], &["web"]);
    }

    #[test]
    fn a_slice_that_moves_touches_both_services() {
        let before = vec![slice("one", "web", None)];
        check(before, vec![slice("one", "dns", None)], &["dns", "web"]);
    }

    #[test]
    fn slices_may_come_before_their_service_and_stay_after_it() {
        let gone = Event::Service(Change::Gone(name("web")));
        let before = vec![slice("web-1", "web", None), service("web", [10, 96, 0, 1])];
        let cluster = check(before, vec![gone], &["web"]);
        assert!(cluster.service(&name("web")).is_none());
        assert_eq!(cluster.services[&name("web")].slices.len(), 1);
    }

    #[test]
    fn objects_missing_from_a_relist_are_removed() {
        let before = vec![
            service("web", [10, 96, 0, 1]),
            service("dns", [10, 96, 0, 2]),
            slice("web-1", "web", None),
        ];
        let relist = vec![
            Event::Relist(Resource::Services),
            service("dns", [10, 96, 0, 2]),
            Event::Listed(Resource::Services),
            Event::Relist(Resource::EndpointSlices),
            Event::Listed(Resource::EndpointSlices),
        ];
        let cluster = check(before, relist, &["web"]);
        assert!(cluster.services.keys().eq([&name("dns")]));
        assert!(cluster.place(&name("web-1")).is_none());
    }

    #[test]
    fn a_slice_is_found_after_each_move_and_leaves_nothing_behind() {
        let mut cluster = Cluster::default();
        let cidr = ServiceCidr {
            name: ObjectName::cluster_scoped("kubernetes"),
            cidrs: vec!["10.0.0.0/24".parse().unwrap()],
        };
        let mut touched = Touched::default();
        cluster.apply(Event::ServiceCidr(Change::Is(cidr)), &mut touched);
        cluster.complete(&mut touched);
        let web_1 = name("web-1");
        for service in ["web", "dns", "web", "api"] {
            cluster.apply(slice("web-1", service, None), &mut Touched::default());
            assert!(cluster.services.keys().eq([&name(service)]));
            assert!(cluster.place(&web_1).is_some() && cluster.may_have_cluster_ip_endpoints());
            assert_eq!(cluster.slice_names.count_others(), usize::from(service != "web"));
        }
        cluster.apply(Event::EndpointSlice(Change::Gone(web_1)), &mut Touched::default());
        assert!(cluster.services.is_empty() && !cluster.may_have_cluster_ip_endpoints());
        assert_eq!(cluster.slice_names.count_others(), 0);
    }

    #[test]
    fn slices_are_relisted_whatever_their_names() {
        for slices in [["web-1", "web-2", "web-3"], ["one", "two", "three"]] {
            let before = slices.map(|it| slice(it, "web", None)).to_vec();
            let [kept, invalid, _gone] = slices;
            let relist = vec![
                Event::Relist(Resource::EndpointSlices),
                slice(kept, "web", None),
                Event::EndpointSlice(Change::Invalid(name(invalid))),
                Event::Listed(Resource::EndpointSlices),
            ];
            let cluster = check(before, relist, &["web"]);
            assert_eq!(slices.map(|it| cluster.place(&name(it)).is_some()), [true, true, false]);
        }
    }

    #[test]
    fn an_invalid_object_keeps_its_last_valid_state_across_a_relist() {
        let before = vec![service("web", [10, 96, 0, 1]), slice("web-1", "web", None)];
        let relist = vec![
            Event::Relist(Resource::Services),
            Event::Service(Change::Invalid(name("web"))),
            Event::Listed(Resource::Services),
        ];
        let cluster = check(before, relist, &[]);
        assert!(cluster.service(&name("web")).is_some());
    }

    #[test]
    fn a_change_of_zone_touches_the_services_with_zone_hints() {
        let before = vec![
            node("z1"),
            service("web", [10, 96, 0, 1]),
            slice("web-1", "web", Some("z1")),
            service("dns", [10, 96, 0, 2]),
            slice("dns-1", "dns", None),
        ];
        check(before, vec![node("z2")], &["web"]);
    }

    fn peer(name: &str, ready: bool) -> Event {
        let name = ObjectName::cluster_scoped(name);
        Event::Peer(Change::Is(Peer { name, addresses: vec![[192, 168, 0, 1].into()], ready }))
    }

    #[test]
    fn a_peer_touches_peers_alone_and_only_if_it_differs() {
        let mut cluster = check(vec![node("z1"), service("web", [10, 96, 0, 1])], vec![], &[]);
        let gone = || Event::Peer(Change::Gone(ObjectName::cluster_scoped("a")));
        for (event, is_touched) in [
            (peer("a", true), true),
            (peer("a", true), false),
            (node("z2"), false),
            (peer("a", false), true),
            (Event::Node(Change::Gone(ObjectName::cluster_scoped("a"))), false),
            (gone(), true),
            (gone(), false),
        ] {
            let mut touched = Touched::default();
            let is_of_node = matches!(event, Event::Node(Change::Is(_)));
            cluster.apply(event.clone(), &mut touched);
            cluster.complete(&mut touched);
            let expected = Touched { peers: is_touched, node: is_of_node, ..Touched::default() };
            assert_eq!(touched, expected, "{event:?}");
        }
        assert!(cluster.peers().is_empty());
    }

    #[test]
    fn peers_that_a_list_does_not_contain_are_gone_and_this_node_stays() {
        let (mut cluster, mut touched) = (Cluster::default(), Touched::default());
        for event in [
            Event::Relist(Resource::Nodes),
            node("z1"),
            peer("a", true),
            peer("b", true),
            Event::Listed(Resource::Nodes),
        ] {
            cluster.apply(event, &mut touched);
        }
        cluster.complete(&mut touched);
        assert!(touched.peers);
        let names = |cluster: &Cluster| cluster.peers().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&cluster), ["a", "b"].map(ObjectName::cluster_scoped));
        for (listed, is_touched) in [(["a", "b"], false), (["b", "b"], true)] {
            let mut touched = Touched::default();
            cluster.apply(Event::Relist(Resource::Nodes), &mut touched);
            for name in listed {
                cluster.apply(peer(name, true), &mut touched);
            }
            cluster.apply(Event::Listed(Resource::Nodes), &mut touched);
            cluster.complete(&mut touched);
            assert_eq!(touched.peers, is_touched, "{listed:?}");
        }
        assert_eq!(names(&cluster), [ObjectName::cluster_scoped("b")]);
        assert!(cluster.node().is_some());
    }

    #[test]
    fn ranges_listed_by_two_objects_stay_until_both_are_gone() {
        let range = |object: &str| {
            let cidrs = vec!["10.96.0.0/12".parse().unwrap()];
            Event::ServiceCidr(Change::Is(ServiceCidr {
                name: ObjectName::cluster_scoped(object),
                cidrs,
            }))
        };
        let gone = |object| Event::ServiceCidr(Change::Gone(ObjectName::cluster_scoped(object)));
        let cluster = check(vec![range("a"), range("b")], vec![gone("a")], &[]);
        assert_eq!(cluster.service_cidrs().len(), 1);
        let cluster = check(vec![range("a"), range("b")], vec![gone("a"), gone("b")], &[]);
        assert!(cluster.service_cidrs().is_empty());
    }

    #[test]
    fn ranges_that_change_together_are_compared_once() {
        let mut cluster = Cluster::default();
        let settings = ExternalAddresses { refuse_internal: true, ..ExternalAddresses::default() };
        cluster.restrict_external(settings, Vec::new());
        let web = Service::new(name("web"), vec![[10, 96, 0, 1].into()]);
        let web = Service { external_ips: vec![[192, 0, 2, 1].into()], ..web };
        cluster.apply(Event::Service(Change::Is(web)), &mut Touched::default());
        let mut touched = Touched::default();
        for second in [97, 98, 99] {
            let cidrs = vec![format!("10.{second}.0.0/16").parse().unwrap()];
            let name = ObjectName::cluster_scoped(&second.to_string());
            cluster
                .apply(Event::ServiceCidr(Change::Is(ServiceCidr { name, cidrs })), &mut touched);
        }
        cluster.complete(&mut touched);
        assert_eq!(touched.dependents, [name("web")]);
    }

    #[test]
    fn the_object_of_this_node_is_deleted_until_it_is_there_again() {
        let gone = Event::Node(Change::Gone(ObjectName::cluster_scoped("node")));
        let (relist, listed) = (Event::Relist(Resource::Nodes), Event::Listed(Resource::Nodes));
        let invalid = Event::Node(Change::Invalid(ObjectName::cluster_scoped("node")));
        let mut cluster = Cluster::default();
        for (events, is_deleted) in [
            (vec![gone.clone()], false),
            (vec![relist.clone(), node("z1"), listed.clone()], false),
            (vec![gone], true),
            (vec![node("z1")], false),
            (vec![relist.clone(), invalid, listed.clone()], false),
            (vec![relist, listed], true),
        ] {
            events.into_iter().for_each(|it| cluster.apply(it, &mut Touched::default()));
            assert_eq!(cluster.is_node_deleted(), is_deleted);
        }
    }

    #[test]
    fn the_cluster_is_listed_when_every_resource_is() {
        for last in Resource::ALL {
            let mut cluster = Cluster::default();
            let others = Resource::ALL.into_iter().filter(|resource| *resource != last);
            for resource in others {
                cluster.apply(Event::Listed(resource), &mut Touched::default());
            }
            assert!(cluster.unlisted().eq([last]) && !cluster.is_listed(), "{last:?}");
            cluster.apply(Event::Listed(last), &mut Touched::default());
            assert!(cluster.is_listed(), "{last:?}");
        }
    }

    #[test]
    fn ranges_that_are_listed_late_touch_the_service_address_ranges() {
        let mut cluster = Cluster::default();
        let late = Resource::ServiceCidrs;
        cluster.apply(Event::Listed(late), &mut Touched::default());
        let mut touched = Touched::default();
        let range = ServiceCidr {
            name: ObjectName::cluster_scoped("kubernetes"),
            cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        };
        let range = Event::ServiceCidr(Change::Is(range));
        for event in [Event::Relist(late), range, Event::Listed(late)] {
            cluster.apply(event, &mut touched);
        }
        assert!(touched.service_cidrs);
        assert_eq!(cluster.service_cidrs().len(), 1);
    }
}
