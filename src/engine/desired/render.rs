//! Renders one service: its frontends and their endpoints.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nft::family::Family;

use super::label::Label;
use super::port_problems::PortProblems;
use super::product_limits::ProductLimits;
use super::service::{DesiredFrontend, DesiredPort, DesiredService, NoLocal, Scope, Traffic};
use super::slot_budget::SlotGrants;
use super::slot_demand::SlotGrant;
use super::slot_plan::{Limits, Reduction, SlotPlan};
use super::small_set::SmallSet;
use super::source_ranges;
use super::timeouts::GrantedTimeout;
use crate::model::{
    PortBlock, Problem, Protocol, Scheduler, Service, ServicePort, ServiceView, TargetList,
    TrafficPolicy, UsableEndpoints,
};
use crate::ruleset::number::{SizeClass, TableSize};
use crate::ruleset::{Frontend, Member, Unserved};

/// Maximum number of endpoints in a list with session affinity. There are four times as many
/// numbers, so a freed one is reused late.
const AFFINITY_LIMIT: usize = 8_192;

/// The annotation with port ranges, as a field.
pub const PORT_RANGES: &str = "metadata.annotations[deltaproxy.io/port-ranges]";

/// Renders a service; `timeout` is that of its session affinity, and `grants` limits its slots.
pub fn render(
    view: &ServiceView<'_>,
    timeout: Option<GrantedTimeout>,
    grants: SlotGrants<'_>,
) -> DesiredService {
    let service = &view.service;
    let scheduler = view.scheduler();
    let range_ports = view.range_ports();
    let mut desired = DesiredService { scheduler, ..DesiredService::default() };
    for family in Family::ALL {
        let cluster_ips =
            || service.cluster_ips.iter().copied().filter(move |ip| Family::of(*ip) == family);
        // A service has no elements in a family without a cluster IP, even with other addresses in
        // that family.
        if cluster_ips().next().is_none() {
            continue;
        }
        let most = ProductLimits::of(service, family);
        report_addresses(service, (family, most), &mut desired);
        let ranges = source_ranges(view, (family, most), grants.of_ranges(family), &mut desired);
        let range_ports = admitted_range_ports(view, family, &range_ports, grants, &mut desired);
        let mut problems = PortProblems::default();
        let single = service.ports.iter().map(|port| (port, None));
        // Port ranges of all protocols share their lists, so they have one place.
        let of_ranges = range_ports.iter().map(|(port, blocks)| (port, Some(blocks)));
        for (i, (port, blocks)) in single.chain(of_ranges).enumerate() {
            let place = i.min(service.ports.len());
            let timeout = match blocks {
                None => timeout.filter(|it| it.seconds > 0),
                Some(_) if timeout.is_none() => continue,
                Some(_) => timeout,
            };
            let (grant, ranges) = (grants.of(family, place), ranges.clone());
            let renderer = PortRenderer { view, port, blocks, place, family, grant, most, ranges };
            let rendered = renderer.render(timeout, &mut desired, &mut problems);
            desired.ports.push(rendered);
        }
        problems.add_to(&service.name, &mut desired.problems);
        desired.members.extend(cluster_ips().map(Member::ClusterIp));
    }
    report_unused(view, scheduler, &mut desired);
    desired.problems.extend(view.refused.iter().chain(view.handing_problems()).cloned());
    desired.keep_first_of_each();
    desired
}

impl DesiredService {
    /// Removes duplicates: a load balancer address may also be an external IP of the same service.
    fn keep_first_of_each(&mut self) {
        let mut known = SmallSet::default();
        for port in &mut self.ports {
            port.frontends.retain(|it| known.insert(it.frontend));
        }
        self.members.sort_unstable();
        self.members.dedup();
    }
}

/// One service port in one table.
struct PortRenderer<'a> {
    view: &'a ServiceView<'a>,
    port: &'a ServicePort,
    /// The ports of port ranges; `None` for a single port.
    blocks: Option<&'a Arc<[PortBlock]>>,
    /// Its place in the service.
    place: usize,
    family: Family,
    /// The slots of each of its lists.
    grant: SlotGrant,
    most: ProductLimits,
    /// Sources that may use load balancer addresses; `None` if all may.
    ranges: Option<Arc<[IpNet]>>,
}

impl PortRenderer<'_> {
    fn render(
        &self,
        timeout: Option<GrantedTimeout>,
        desired: &mut DesiredService,
        problems: &mut PortProblems,
    ) -> DesiredPort {
        let (view, port, family) = (self.view, self.port, self.family);
        let UsableEndpoints { cluster, local } = view.usable_endpoints(port, family);
        let mut endpoints = [cluster, local];
        let is_udp = port.protocol == Protocol::Udp;
        let hairpins = endpoints[Scope::Local as usize].iter();
        desired.members.extend(hairpins.map(|target| match self.blocks {
            None => Member::Hairpin(*target, port.protocol),
            Some(_) => Member::RangeHairpin(target.address),
        }));
        let [cluster, local] = endpoints.each_mut().map(|list| self.slots(list, timeout, problems));
        self.check_timeout(timeout, problems);
        let mut rendered = DesiredPort {
            family,
            protocol: port.protocol,
            port: port.port,
            blocks: self.blocks.cloned().unwrap_or_default(),
            label: Label::new(&view.service.name, port).with_scheduler(view.scheduler_of(port)),
            endpoints,
            slots: [cluster.0, local.0],
            timeout,
            frontends: smallvec::SmallVec::new(),
            ranges: self.ranges.clone().unwrap_or_default(),
            serving: is_udp.then(|| view.serving_endpoints(port, family).into()),
            no_local: NoLocal::default(),
        };
        rendered.no_local = no_local(&view.service, &rendered);
        self.add_frontends(&mut rendered);
        for (scope, reduction) in Scope::ALL.into_iter().zip([cluster.1, local.1]) {
            let mut frontends = rendered.frontends.iter();
            if let Some(reduction) =
                reduction.filter(|_| frontends.any(|it| it.traffic.uses(scope)))
            {
                self.report_reduction(&reduction, problems);
            }
        }
        rendered
    }

    fn add_frontends(&self, rendered: &mut DesiredPort) {
        let service = &self.view.service;
        let (internal, external) = (internal(service, rendered), external(service, rendered));
        let is_handed = self.view.is_handed(self.family);
        let outside = handed(is_handed, rendered, external, Traffic::ExternalLocal);
        let is_handed = self.view.hands_node_ports(self.family, self.port.protocol);
        let at_node = handed(is_handed, rendered, external, Traffic::ChosenNode);
        let cluster_ips = service.cluster_ips.iter().map(|ip| (ip, internal, false));
        // Only load balancer addresses have source ranges. They come before external IPs, because
        // an address may be both.
        let has_source_ranges = self.ranges.is_some();
        let load_balancer =
            service.load_balancer_ips.iter().map(|ip| (ip, outside, has_source_ranges));
        let external_ips = service.external_ips.iter().map(|ip| (ip, outside, false));
        let of_family = |(ip, ..): &(&IpAddr, Traffic, bool)| Family::of(**ip) == self.family;
        let others = load_balancer.chain(external_ips).filter(of_family).take(self.most.addresses);
        let own = cluster_ips.filter(of_family).chain(others);
        let ServicePort { protocol, port, node_port, .. } = *self.port;
        rendered.frontends.extend(own.map(|(&address, traffic, has_source_ranges)| {
            let frontend = match self.blocks {
                None => Frontend::Address { address, protocol, port },
                Some(_) => Frontend::Ranges { address, protocol },
            };
            DesiredFrontend { frontend, traffic, has_source_ranges }
        }));
        rendered.frontends.extend(node_port.map(|port| {
            let frontend = Frontend::NodePort { family: self.family, protocol, port };
            DesiredFrontend { frontend, traffic: at_node, has_source_ranges: false }
        }));
    }

    /// Returns the contents of the slots of a list of these endpoints. Excess endpoints, and those
    /// without weight, are left out.
    fn slots(
        &self,
        list: &mut TargetList,
        timeout: Option<GrantedTimeout>,
        problems: &mut PortProblems,
    ) -> (SlotPlan, Option<Reduction>) {
        self.limit(list, timeout, problems);
        let weights = self.view.effective_weights(self.port, self.family, list);
        let most = if timeout.is_some() { SizeClass::LARGEST_SESSION } else { SizeClass::LARGEST };
        let limits = Limits { most: most.most(), grant: self.grant };
        SlotPlan::new(self.view.scheduler_of(self.port), list, weights, limits)
    }

    /// Reports that a list has fewer slots than it needs.
    fn report_reduction(&self, reduction: &Reduction, problems: &mut PortProblems) {
        let field = match self.view.service.weights {
            Some(_) => "metadata.annotations[deltaproxy.io/weights]",
            None => "metadata.annotations[deltaproxy.io/scheduler]",
        };
        self.report(field, reduction.to_string(), problems);
    }

    /// Leaves out the endpoints above the limit.
    fn limit(
        &self,
        list: &mut TargetList,
        timeout: Option<GrantedTimeout>,
        problems: &mut PortProblems,
    ) {
        let is_table = matches!(self.view.service.scheduler, Some(Scheduler::Maglev(_)));
        let (limit, field) = match timeout {
            Some(_) => (AFFINITY_LIMIT, "spec.sessionAffinity"),
            None if is_table => (TableSize::LARGEST.slots() as usize, "spec.ports"),
            None => (SizeClass::LARGEST.most() as usize, "spec.ports"),
        };
        let limit = limit.min(self.most.endpoints);
        if list.len() > limit {
            let message =
                format!("of its {} endpoints only the first {limit} are used", list.len());
            self.report(field, message, problems);
            if is_table {
                // Keeps the same endpoints on every node.
                list.sort_unstable();
            }
            list.truncate(limit);
        }
    }

    fn check_timeout(&self, timeout: Option<GrantedTimeout>, problems: &mut PortProblems) {
        let service = &self.view.service;
        let Some(requested) = service.session_affinity else { return };
        let message = match timeout {
            Some(granted) if Duration::from_secs(granted.seconds.into()) == requested => return,
            Some(granted) => format!(
                "clients are remembered for {} seconds: so many timeouts are in use that it gets \
                 one of another service",
                granted.seconds
            ),
            None => return,
        };
        self.report("spec.sessionAffinity", message, problems);
    }

    fn report(&self, field: &'static str, message: String, problems: &mut PortProblems) {
        let port = self.blocks.is_none().then_some(self.port.port);
        problems.add((self.place, port), field, message);
    }
}

/// Returns the sources that may use load balancer addresses; `None` if all may. Reports those above
/// the limit and the grant, which are not admitted.
fn source_ranges(
    view: &ServiceView<'_>,
    (family, most): (Family, ProductLimits),
    grant: SlotGrant,
    desired: &mut DesiredService,
) -> Option<Arc<[IpNet]>> {
    let service = &view.service;
    let mut ranges = source_ranges::admitted(&service.source_ranges, family)?;
    let is_reduced = grant.given < grant.requested;
    let given = if is_reduced { grant.given as usize } else { most.ranges };
    if ranges.len() > given {
        let cause = if is_reduced {
            "; services of this namespace have more than its share of the node's source ranges"
        } else {
            ""
        };
        let message = format!(
            "of its {} source ranges only the first {given} are admitted{cause}",
            ranges.len()
        );
        let field = "spec.loadBalancerSourceRanges";
        desired.problems.push(Problem::of_limit(&service.name, field, &message));
        ranges.truncate(given);
    }
    let vips = (&*service.load_balancer_ips, family);
    source_ranges::admit_vips(&mut ranges, vips, view.node_address(family), most.ranges);
    Some(ranges.into())
}

/// Returns the ports that stand for port ranges; reports that there are none because of the grant.
fn admitted_range_ports<'a>(
    view: &ServiceView<'_>,
    family: Family,
    range_ports: &'a [(ServicePort, Arc<[PortBlock]>)],
    grants: SlotGrants<'_>,
    desired: &mut DesiredService,
) -> &'a [(ServicePort, Arc<[PortBlock]>)] {
    if grants.has_port_ranges(family) {
        return range_ports;
    }
    let message = "its port ranges are left out; services of this namespace have more than its share \
        of the node's ranges";
    desired.problems.push(Problem::of_limit(&view.service.name, PORT_RANGES, message));
    &[]
}

/// Reports external addresses above the limit.
fn report_addresses(
    service: &Service,
    (family, most): (Family, ProductLimits),
    desired: &mut DesiredService,
) {
    let all = service.load_balancer_ips.iter().chain(&service.external_ips);
    let count = all.filter(|ip| Family::of(**ip) == family).count();
    if count > most.addresses {
        let message = format!(
            "of its {count} external addresses only the first {} are used, each with {} ports",
            most.addresses,
            service.ports.len()
        );
        desired.problems.push(Problem::of_limit(&service.name, "spec.externalIPs", &message));
    }
}

/// Reports a scheduler of the service that is not in use.
fn report_unused(view: &ServiceView<'_>, scheduler: Scheduler, desired: &mut DesiredService) {
    let named = view.service.scheduler.unwrap_or_default();
    if named != scheduler {
        let message = format!(
            "scheduler {named} is off on this node; {scheduler} is used. \
             deltaproxy.leastConnections.interval, or --least-connections, turns it on"
        );
        let field = "metadata.annotations[deltaproxy.io/scheduler]";
        desired.problems.push(Problem::of_service(&view.service.name, field, &message));
    }
}

/// Returns the route of packets to a cluster IP.
fn internal(service: &Service, port: &DesiredPort) -> Traffic {
    let scope = match service.internal_traffic_policy {
        TrafficPolicy::Cluster => Scope::Cluster,
        TrafficPolicy::Local => Scope::Local,
    };
    match (port.endpoints(scope).is_empty(), has_endpoints(port)) {
        (false, _) => Traffic::To { scope, masquerade: false },
        (true, false) => Traffic::Unserved(Unserved::Refuse),
        (true, true) => Traffic::Unserved(Unserved::Drop),
    }
}

/// Returns the route of packets to external IPs, load balancer addresses and node ports.
fn external(service: &Service, port: &DesiredPort) -> Traffic {
    match service.external_traffic_policy {
        _ if !has_endpoints(port) => Traffic::Unserved(Unserved::Refuse),
        TrafficPolicy::Cluster if port.endpoints(Scope::Cluster).is_empty() => {
            Traffic::Unserved(Unserved::Refuse)
        }
        TrafficPolicy::Cluster => Traffic::To { scope: Scope::Cluster, masquerade: true },
        TrafficPolicy::Local => Traffic::ExternalLocal,
    }
}

/// Returns the route of packets from outside. Those that nodes hand to each other come to a node with
/// endpoints and go to one of these, without masquerade, by the route `by_node`.
fn handed(is_handed: bool, port: &DesiredPort, external: Traffic, by_node: Traffic) -> Traffic {
    let has_local = !port.endpoints(Scope::Local).is_empty();
    let is_served = matches!(external, Traffic::To { .. });
    if is_served && has_local && is_handed { by_node } else { external }
}

/// Counts as kube-proxy: by the policies, whether or not the service has external addresses
/// (`syncProxyRules` in pkg/proxy/nftables/proxier.go).
fn no_local(service: &Service, port: &DesiredPort) -> NoLocal {
    if !has_endpoints(port) || !port.endpoints(Scope::Local).is_empty() {
        return NoLocal::default();
    }
    NoLocal {
        internal: service.internal_traffic_policy == TrafficPolicy::Local,
        external: service.external_traffic_policy == TrafficPolicy::Local,
    }
}

fn has_endpoints(port: &DesiredPort) -> bool {
    !port.endpoints.iter().all(TargetList::is_empty)
}
