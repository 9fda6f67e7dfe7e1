//! Events, and the element changes that they cause.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::IpNet;
use nft::Operation;
use nft::family::Family;

use super::lists::Lists;
use super::{Context, Diff, Finding, FoundElements, FrontendState, InstalledElement, Progress};
use crate::desired::{SlotBudget, SlotDemand, Timeouts};
use crate::model::{
    Change, Cluster, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Extent, ObjectName,
    Problem, Protocol, Service, ServicePort, Target, Touched, TrafficPolicy,
};
use crate::piece::{Piece, PieceLimits};
use crate::ruleset::number::{ListId, Route};
use crate::ruleset::{Frontend, Layouts, Member, TableElement, Unserved};

fn service(name: &str, cluster_ip: &str) -> Service {
    let name = ObjectName::namespaced("default", name);
    Service {
        ports: vec![ServicePort::tcp("http", NonZeroU16::new(80).unwrap())],
        ..Service::new(name, vec![cluster_ip.parse().unwrap()])
    }
}

fn with_external_ip(service: Service, created: i64) -> Service {
    Service { created, external_ips: vec![IpAddr::from([192, 0, 2, 1])], ..service }
}

fn slice(service: &str, endpoints: &[(u8, bool)]) -> EndpointSlice {
    let name = ObjectName::namespaced("default", service);
    let endpoint = |(last, local): &(u8, bool)| Endpoint {
        address: IpAddr::from([10, 244, 0, *last]),
        conditions: Conditions { local: *local, ..Conditions::READY },
        zones: None,
    };
    EndpointSlice {
        name: name.clone(),
        service: name,
        ports: [EndpointPort::tcp("http", NonZeroU16::new(8080).unwrap())].into(),
        endpoints: endpoints.iter().map(endpoint).collect(),
        triggered: None,
        weighing: None,
    }
}

/// State with all changes committed.
#[derive(Default)]
struct Settled {
    cluster: Cluster,
    timeouts: Timeouts,
    slots: SlotBudget,
    diff: Diff,
}

const LIMITS: PieceLimits = PieceLimits { budget: usize::MAX, limit: usize::MAX };

impl Settled {
    /// Applies an event; returns the changes as nft(8) commands, by transaction, and the problems.
    fn apply(&mut self, event: Event) -> (Vec<Vec<String>>, Vec<Problem>) {
        let mut touched = Touched::default();
        self.cluster.apply(event, &mut touched);
        for name in touched.services.keys() {
            self.timeouts.request(name, self.cluster.session_timeout(name));
            let view = self.cluster.service(name);
            self.slots.request(name, view.and_then(|view| SlotDemand::of(&view)));
        }
        self.slots.share();
        self.timeouts.number_all();
        self.update(touched.services.into_iter().collect())
    }

    fn update(
        &mut self,
        mut services: Vec<(ObjectName, Extent)>,
    ) -> (Vec<Vec<String>>, Vec<Problem>) {
        let (mut transactions, mut problems) = (Vec::new(), Vec::new());
        loop {
            let mut piece = Piece::new(LIMITS);
            let mut after_commit = Vec::new();
            while let Some((name, extent)) = services.pop() {
                let context = Context {
                    cluster: &self.cluster,
                    timeouts: &self.timeouts,
                    slots: &self.slots,
                    ranges: &self.slots,
                    may_postpone: false,
                    rendered: None,
                };
                let updated = self.diff.update(&name, &extent, context, &mut piece);
                assert_ne!(updated.progress, Progress::Partial);
                services.extend(updated.affected.into_iter().map(|name| (name, Extent::Whole)));
                problems.extend(updated.conflicts.into_iter().map(|it| it.problem));
                problems.extend(updated.problems);
                let must_wait = updated.progress == Progress::AfterCommit;
                after_commit.extend(must_wait.then_some((name, Extent::Whole)));
            }
            self.diff.update_others(&self.cluster, &mut piece);
            let operations = piece.into_operations(&Layouts::default());
            if operations.is_empty() {
                break;
            }
            transactions.push(operations.iter().map(text).collect());
            self.diff.committed();
            services = after_commit;
        }
        assert!(self.diff.is_settled());
        (transactions, problems)
    }

    /// Checks the transactions that an event causes.
    #[track_caller]
    fn check(&mut self, event: Event, expected: &[&[&str]]) {
        let (changes, problems) = self.apply(event);
        assert_eq!(changes, expected);
        assert_eq!(problems, []);
    }

    fn is_empty(&self) -> bool {
        self.diff.frontends.is_empty()
            && self.diff.lists.iter().all(Lists::is_empty)
            && self.diff.members.is_empty()
            && self.diff.services.is_empty()
    }

    fn holder(&self, frontend: &Frontend) -> Option<&str> {
        self.diff.frontends.holder(frontend).map(ObjectName::as_str)
    }
}

/// Returns `+services { … }`, without the table.
fn text(operation: &Operation) -> String {
    let text = operation.to_string();
    let text = text.replace("add element ip kube-proxy ", "+");
    text.replace("delete element ip kube-proxy ", "-")
}

fn is(service: Service) -> Event {
    Event::Service(Change::Is(service))
}

fn slice_is(slice: EndpointSlice) -> Event {
    Event::EndpointSlice(Change::Is(slice))
}

fn web() -> Settled {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    settled.apply(slice_is(slice("web", &[(1, false), (2, false), (3, false)])));
    settled
}

#[test]
fn a_cluster_ip_without_endpoints_is_refused() {
    Settled::default().check(
        is(service("web", "10.96.0.1")),
        &[&[
            "+unserved-services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:0 }",
            "+cluster-ips { 10.96.0.1 }",
        ]],
    );
}

#[test]
fn the_first_endpoint_moves_a_frontend_from_refused_to_served() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    settled.check(
        slice_is(slice("web", &[(1, false)])),
        &[&[
            "-unserved-services { 10.96.0.1 . tcp . 80 }",
            "+endpoints { 1:0 . tcp . 0 : 10.244.0.1 . 8080 }",
            "+services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:1 }",
        ]],
    );
}

#[test]
fn removing_an_endpoint_moves_the_last_into_its_slot() {
    web().check(
        slice_is(slice("web", &[(2, false), (3, false)])),
        &[&[
            "-endpoints { 1:0 . tcp . 0, 1:0 . tcp . 2 }",
            "-services { 10.96.0.1 . tcp . 80 }",
            "+endpoints { 1:0 . tcp . 0 : 10.244.0.3 . 8080 }",
            "+services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:2 }",
        ]],
    );
}

#[test]
fn a_replaced_endpoint_costs_two_elements() {
    web().check(
        slice_is(slice("web", &[(1, false), (9, false), (3, false)])),
        &[&["-endpoints { 1:0 . tcp . 1 }", "+endpoints { 1:0 . tcp . 1 : 10.244.0.9 . 8080 }"]],
    );
}

/// Packets that found the frontend before the commit may still look up its endpoints.
#[test]
fn the_last_endpoint_goes_one_transaction_after_its_frontend() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    settled.apply(slice_is(slice("web", &[(1, false)])));
    settled.check(
        slice_is(slice("web", &[])),
        &[
            &[
                "-services { 10.96.0.1 . tcp . 80 }",
                "+unserved-services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:0 }",
            ],
            &["-endpoints { 1:0 . tcp . 0 }"],
        ],
    );
}

#[test]
fn a_list_that_comes_again_has_another_number() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    settled.apply(slice_is(slice("web", &[(1, false)])));
    settled.apply(slice_is(slice("web", &[])));
    let (changes, _) = settled.apply(slice_is(slice("web", &[(1, false)])));
    assert!(changes[0].iter().any(|it| it.starts_with("+endpoints { 1:100 ")), "{changes:?}");
}

/// A service with a cluster IP, a node port, two external IPs and a load balancer address.
fn many_frontends(policy: TrafficPolicy) -> Service {
    let mut service = service("web", "10.96.0.1");
    service.ports[0].node_port = NonZeroU16::new(30_080);
    service.external_ips = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    service.load_balancer_ips = vec![[192, 0, 2, 3].into()];
    Service { external_traffic_policy: policy, ..service }
}

#[test]
fn however_many_frontends_there_are_an_endpoint_is_stored_once_for_each_list() {
    for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
        let mut settled = Settled::default();
        settled.apply(is(many_frontends(policy)));
        settled.apply(slice_is(slice("web", &[(1, false), (2, false), (3, true)])));
        settled.check(
            slice_is(slice("web", &[(1, false), (9, false), (3, true)])),
            &[&[
                "-endpoints { 1:0 . tcp . 1 }",
                "+endpoints { 1:0 . tcp . 1 : 10.244.0.9 . 8080 }",
            ]],
        );
        let endpoints = [(1, false), (9, false), (3, true), (4, false)];
        let (changes, _) = settled.apply(slice_is(slice("web", &endpoints)));
        let elements: usize =
            changes.iter().flatten().map(|line| line.matches(" . tcp . ").count()).sum();
        // One endpoint, and the size class in each of five routes, deleted and added. The node
        // port's element does not begin with an address.
        let node_port = changes.iter().flatten().filter(|line| line.contains("nodeports")).count();
        assert_eq!(elements + node_port, 1 + 2 * 5, "{changes:?}");
    }
}

#[test]
fn a_policy_that_changes_leaves_nothing_that_packets_may_still_look_up() {
    let mut settled = Settled::default();
    settled.apply(is(many_frontends(TrafficPolicy::Local)));
    settled.apply(slice_is(slice("web", &[(1, false), (2, true)])));
    let (changes, _) = settled.apply(is(many_frontends(TrafficPolicy::Cluster)));
    let gone = |transaction: &[String], what: &str| {
        transaction.iter().any(|line| line.starts_with(&format!("-{what} ")))
    };
    assert!(!gone(&changes[0], "internal-services") && !gone(&changes[0], "endpoints"));
    let later = changes[1..].concat();
    assert!(gone(&later, "internal-services") && gone(&later, "internal-nodeports"));
    assert!(gone(&later, "endpoints"), "the list of endpoints on this node");
}

#[test]
fn source_ranges_and_the_mark_that_packets_are_checked_by_come_before_the_route() {
    let mut settled = web();
    let service = Service {
        load_balancer_ips: vec![[192, 0, 2, 3].into()],
        source_ranges: vec![IpNet::new(IpAddr::from([198, 51, 100, 0]), 24).unwrap()],
        ..service("web", "10.96.0.1")
    };
    settled.check(
        is(service),
        &[
            &[
                "+restricted-services { 192.0.2.3 . tcp . 80 }",
                "+source-ranges { 198.51.100.0 . 6024 . 192.0.2.3 . 80 }",
                "+source-refusals { 192.0.2.3 . tcp . 80 }",
            ],
            &["+services { 192.0.2.3 . tcp . 80 comment \"default/web:http\" : 1:23 }"],
        ],
    );
}

#[test]
fn a_source_range_that_another_replaces_goes_one_commit_later() {
    let guarded = |length: u8| Service {
        source_ranges: vec![IpNet::new(IpAddr::from([198, 51, 100, 0]), length).unwrap()],
        ..many_frontends(TrafficPolicy::Cluster)
    };
    let mut settled = Settled::default();
    settled.apply(is(guarded(24)));
    settled.check(
        is(guarded(25)),
        &[
            &["+source-ranges { 198.51.100.0 . 6025 . 192.0.2.3 . 80 }"],
            &["-source-ranges { 198.51.100.0 . 6024 . 192.0.2.3 . 80 }"],
        ],
    );
}

#[test]
fn source_ranges_go_after_the_mark_that_packets_are_checked_by() {
    let guarded = |ranges: &[[u8; 4]]| Service {
        source_ranges: ranges.iter().map(|it| IpNet::new(IpAddr::from(*it), 24).unwrap()).collect(),
        ..many_frontends(TrafficPolicy::Cluster)
    };
    let mut settled = Settled::default();
    settled.apply(is(guarded(&[[198, 51, 100, 0]])));
    settled.check(
        is(guarded(&[])),
        &[
            &[
                "-restricted-services { 192.0.2.3 . tcp . 80 }",
                "-source-refusals { 192.0.2.3 . tcp . 80 }",
            ],
            &["-source-ranges { 198.51.100.0 . 6024 . 192.0.2.3 . 80 }"],
        ],
    );
}

fn sticky(seconds: u64) -> Service {
    Service { session_affinity: Some(Duration::from_secs(seconds)), ..service("web", "10.96.0.1") }
}

#[test]
fn a_list_with_affinity_names_endpoints_by_numbers() {
    let mut settled = Settled::default();
    settled.apply(is(sticky(60)));
    settled.check(
        slice_is(slice("web", &[(1, false), (2, false)])),
        &[&[
            "-unserved-services { 10.96.0.1 . tcp . 80 }",
            "+services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:182 }",
            "+affinity-slots { 1:0 . 0 : 1:8001, 1:0 . 1 : 1:8002 }",
            "+affinity-endpoints { tcp . 1:8001 : 10.244.0.1 . 8080, \
             tcp . 1:8002 : 10.244.0.2 . 8080 }",
            "+affinity-lists { 1:0 : 1:182 }",
        ]],
    );
    settled.check(
        slice_is(slice("web", &[(9, false), (2, false)])),
        &[&[
            "-affinity-slots { 1:0 . 0 }",
            "-affinity-endpoints { tcp . 1:8001 }",
            "+affinity-slots { 1:0 . 0 : 1:8003 }",
            "+affinity-endpoints { tcp . 1:8003 : 10.244.0.9 . 8080 }",
        ]],
    );
    settled.check(
        is(sticky(90)),
        &[&[
            "-services { 10.96.0.1 . tcp . 80 }",
            "-affinity-lists { 1:0 }",
            "+services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:282 }",
            "+affinity-lists { 1:0 : 1:282 }",
        ]],
    );
}

#[test]
fn without_a_free_number_for_affinity_the_service_works_without_it() {
    let mut settled = Settled::default();
    settled.diff.lists.iter_mut().for_each(|lists| lists.limit_sessions(1));
    let other =
        Service { session_affinity: Some(Duration::from_secs(60)), ..service("a", "10.96.0.2") };
    settled.apply(is(other));
    settled.apply(slice_is(slice("a", &[(1, false)])));
    settled.apply(is(sticky(60)));
    let (changes, problems) = settled.apply(slice_is(slice("web", &[(2, false)])));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.to_string().contains("default/web"), "{problem}");
    assert!(changes[0].contains(&"+endpoints { 1:0 . tcp . 0 : 10.244.0.2 . 8080 }".to_owned()));
    // The number of the other service is not used for two commits.
    settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "a"))));
    settled.apply(slice_is(slice("web", &[(3, false)])));
    let (changes, problems) = settled.apply(is(sticky(90)));
    assert_eq!(problems, []);
    assert!(changes[0].contains(&"+affinity-lists { 1:0 : 1:281 }".to_owned()), "{changes:?}");
}

#[test]
fn without_a_free_number_for_a_list_its_service_is_refused_and_named_and_others_work() {
    let mut settled = Settled::default();
    settled.diff.lists.iter_mut().for_each(|lists| lists.limit_plain(1));
    settled.apply(is(service("a", "10.96.0.2")));
    settled.apply(slice_is(slice("a", &[(1, false)])));
    settled.apply(is(service("web", "10.96.0.1")));
    let (changes, problems) = settled.apply(slice_is(slice("web", &[(2, false)])));
    assert_eq!((changes.len(), problems.len()), (0, 1), "{changes:?} {problems:?}");
    assert!(problems[0].message.contains("no number is free"), "{problems:?}");
    settled.check(
        slice_is(slice("a", &[(3, false)])),
        &[&["-endpoints { 1:0 . tcp . 0 }", "+endpoints { 1:0 . tcp . 0 : 10.244.0.3 . 8080 }"]],
    );
}

#[test]
fn the_number_of_a_list_that_was_not_found_is_given_to_no_other_service() {
    let mut settled = Settled::default();
    settled.diff.lists.iter_mut().for_each(|lists| lists.limit_plain(1));
    settled.apply(is(service("web", "10.96.0.1")));
    settled.apply(slice_is(slice("web", &[(1, false)])));
    settled.diff.replace_installed_elements(Family::ALL.map(FoundElements::new));
    settled.apply(is(service("a", "10.96.0.2")));
    let (_, problems) = settled.apply(slice_is(slice("a", &[(2, false)])));
    assert!(problems[0].message.contains("no number is free"), "{problems:?}");
    let (changes, problems) = settled.apply(slice_is(slice("web", &[(3, false)])));
    assert_eq!(problems, []);
    assert!(changes[0].contains(&"+endpoints { 1:0 . tcp . 0 : 10.244.0.3 . 8080 }".to_owned()));
}

#[test]
fn an_endpoint_on_this_node_may_reach_itself() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    let (changes, _) = settled.apply(slice_is(slice("web", &[(1, true)])));
    let hairpin = "+hairpin-connections { 10.244.0.1 . 10.244.0.1 . tcp . 8080 }";
    assert!(changes[0].contains(&hairpin.to_owned()), "{changes:?}");
}

#[test]
fn a_service_that_goes_leaves_nothing() {
    for service in [many_frontends(TrafficPolicy::Local), sticky(60)] {
        let mut settled = Settled::default();
        settled.apply(is(service));
        settled.apply(slice_is(slice("web", &[(1, false), (2, true)])));
        settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "web"))));
        assert!(settled.is_empty(), "{:?}", settled.diff);
    }
}

#[test]
fn a_rename_with_the_same_address_replaces_only_the_comment() {
    let mut settled = Settled::default();
    settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
    settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
    let (changes, _) =
        settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "a"))));
    let moved = "+unserved-services { 192.0.2.1 . tcp . 80 comment \"default/b:http\" : 1:0 }";
    assert!(changes[0].contains(&moved.to_owned()), "{changes:?}");
}

#[test]
fn an_address_that_two_services_swap_in_one_burst_leads_to_the_right_endpoints() {
    let mut settled = Settled::default();
    settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
    settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
    settled.apply(slice_is(slice("a", &[(1, false)])));
    settled.apply(slice_is(slice("b", &[(2, false)])));
    let mut touched = Touched::default();
    settled.cluster.apply(is(with_external_ip(service("a", "10.96.0.1"), 5)), &mut touched);
    settled.cluster.apply(slice_is(slice("b", &[(3, false)])), &mut touched);
    let (changes, _) = settled.update(touched.services.into_iter().collect());
    let moved = "+services { 192.0.2.1 . tcp . 80 comment \"default/b:http\" : 1:121 }";
    assert!(changes[0].contains(&moved.to_owned()), "{changes:?}");
}

#[test]
fn of_two_claims_the_older_wins_in_either_order_and_one_warning_is_given() {
    for order in [["old", "young"], ["young", "old"]] {
        let mut settled = Settled::default();
        let mut problems = Vec::new();
        for name in order {
            let (address, created) =
                if name == "old" { ("10.96.0.1", 1) } else { ("10.96.0.2", 2) };
            let service = with_external_ip(service(name, address), created);
            problems.extend(settled.apply(is(service)).1);
        }
        let (_, again) = settled.apply(slice_is(slice("young", &[(1, false)])));
        problems.extend(again);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].object.to_string(), "Service default/young");
        let frontend = Frontend::Address {
            address: IpAddr::from([192, 0, 2, 1]),
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(80).unwrap(),
        };
        assert_eq!(settled.holder(&frontend), Some("default/old"));
    }
}

#[test]
fn an_address_of_a_service_that_became_younger_goes_to_the_oldest() {
    let mut settled = Settled::default();
    for (name, ip, created) in [("a", "10.96.0.1", 0), ("b", "10.96.0.2", 1), ("c", "10.96.0.3", 2)]
    {
        settled.apply(is(with_external_ip(service(name, ip), created)));
    }
    // The holder is created anew, and another waiting service is updated before it.
    let anew = is(with_external_ip(service("a", "10.96.0.1"), 9));
    let mut touched = Touched::default();
    settled.cluster.apply(anew, &mut touched);
    settled.apply(slice_is(slice("c", &[(1, false)])));
    settled.update(touched.services.into_iter().collect());
    let frontend = Frontend::Address {
        address: IpAddr::from([192, 0, 2, 1]),
        protocol: Protocol::Tcp,
        port: NonZeroU16::new(80).unwrap(),
    };
    assert_eq!(settled.holder(&frontend), Some("default/b"));
}

#[test]
fn an_address_that_holder_and_waiting_service_give_back_together_is_removed() {
    let mut settled = Settled::default();
    settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
    settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
    // The waiting service drops the address before the holder is updated.
    settled.cluster.apply(is(service("b", "10.96.0.2")), &mut Touched::default());
    let (changes, _) = settled.apply(is(service("a", "10.96.0.1")));
    assert_eq!(changes, [["-unserved-services { 192.0.2.1 . tcp . 80 }"]]);
}

#[test]
fn a_service_has_nothing_in_a_family_without_cluster_ip() {
    let mut service = service("web", "10.96.0.1");
    service.ports[0].node_port = NonZeroU16::new(30_080);
    service.external_ips = vec!["fd00::1".parse().unwrap()];
    let mut settled = Settled::default();
    settled.apply(is(service));
    let families = settled.diff.frontends.iter().map(|frontend| frontend.family());
    assert_eq!(families.filter(|family| *family == Family::Ip6).count(), 0);
}

#[test]
fn a_frontend_that_a_service_claims_before_it_is_swept_stays() {
    let mut settled = Settled::default();
    let frontend = Frontend::Address {
        address: IpAddr::from([192, 0, 2, 1]),
        protocol: Protocol::Tcp,
        port: NonZeroU16::new(80).unwrap(),
    };
    let mut found = FoundElements::new(Family::Ip);
    found.add(&TableElement::Unserved(frontend, Unserved::Drop, None));
    settled.diff.replace_installed_elements([found, FoundElements::new(Family::Ip6)]);
    settled.diff.begin_sweep();
    let (changes, _) = settled.apply(is(with_external_ip(service("web", "10.96.0.1"), 0)));
    let installed = "192.0.2.1 . tcp . 80 comment \"default/web:http\" : 1:0";
    assert!(changes[0].iter().any(|line| line.contains(installed)), "{changes:?}");
    assert_eq!(settled.holder(&frontend), Some("default/web"));
}

/// State after a service went, with everything that packets may still look up.
fn keeping_unused_elements() -> Settled {
    let mut settled = Settled::default();
    settled.diff.keep_unused_elements();
    settled.apply(is(many_frontends(TrafficPolicy::Local)));
    settled.apply(slice_is(slice("web", &[(1, false), (2, true)])));
    settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "web"))));
    settled
}

impl Settled {
    /// Returns the internal routes, without a holder.
    fn unused_internal_routes(&self) -> Vec<(Frontend, InstalledElement)> {
        let internal = |frontend: Frontend| {
            let route = self.diff.frontends.get(&frontend)?.internal()?;
            let element = TableElement::Internal(frontend, route);
            Some((frontend, InstalledElement::found(Family::Ip, &element)))
        };
        let found: Vec<_> = self.diff.frontends.iter().filter_map(internal).collect();
        assert!(found.iter().all(|(frontend, _)| self.holder(frontend).is_none()));
        assert!(!found.is_empty());
        found
    }

    fn release_unused_elements(&mut self) {
        let kept = self.diff.kept().unwrap();
        self.diff.release(kept);
        self.update(Vec::new());
    }
}

#[test]
fn a_list_goes_when_another_program_changes_the_last_route_of_no_service_to_it() {
    let mut settled = keeping_unused_elements();
    for (frontend, _) in settled.unused_internal_routes() {
        let changed = TableElement::Internal(frontend, Route::WITHOUT_LIST);
        assert!(settled.diff.adopt(InstalledElement::found(Family::Ip, &changed)));
    }
    settled.release_unused_elements();
    assert!(settled.is_empty(), "{:?}", settled.diff);
}

#[test]
fn a_frontend_of_no_service_is_forgotten_when_its_last_element_is_missing() {
    let mut settled = keeping_unused_elements();
    for (_, installed) in settled.unused_internal_routes() {
        assert!(settled.diff.correct(installed, Finding::Missing));
    }
    settled.release_unused_elements();
    assert!(settled.is_empty(), "{:?}", settled.diff);
}

/// One element of each kind. The first [`OF_FRONTENDS`] belong to a frontend.
fn elements_of_each_kind() -> [TableElement<'static>; 11] {
    let (address, protocol, port) = (IpAddr::from([192, 0, 2, 1]), Protocol::Tcp, NonZeroU16::MIN);
    let frontend = Frontend::Address { address, protocol, port };
    let target = Target { address, port };
    let (plain, session) = (ListId::plain(300), ListId::session(3));
    [
        TableElement::Route(frontend, Route::WITHOUT_LIST, None),
        TableElement::Unserved(frontend, Unserved::Drop, None),
        TableElement::Internal(frontend, Route::WITHOUT_LIST),
        TableElement::Restricted(frontend),
        TableElement::SourceRange(frontend, address.into()),
        TableElement::SourceRefusals(frontend),
        TableElement::Endpoint(plain, protocol, 0, target),
        TableElement::Member(Member::ClusterIp(address)),
        TableElement::AffinitySlot(session, 0, 1),
        TableElement::AffinityEndpoint(session, protocol, 1, target),
        TableElement::AffinityList(session, Route::WITHOUT_LIST),
    ]
}

const OF_FRONTENDS: usize = 6;

#[test]
fn a_finding_of_another_set_changes_nothing_and_the_tables_must_be_read() {
    let elements = elements_of_each_kind();
    for (i, installed) in elements.iter().enumerate() {
        for (j, found) in elements.iter().enumerate() {
            let mut state = FrontendState::default();
            let is_corrected =
                state.correct(*installed, Some(InstalledElement::found(Family::Ip, found)));
            assert_eq!(is_corrected, i == j && i < OF_FRONTENDS, "{found:?} for {installed:?}");
            assert_eq!(state == FrontendState::default(), !is_corrected, "{found:?}");
            assert_eq!(state.correct(*installed, None), i < OF_FRONTENDS, "{installed:?}");
            assert_eq!(state, FrontendState::default(), "{installed:?} is gone");
        }
    }
}

#[test]
fn a_walk_over_all_services_goes_by_name_and_meets_those_that_stay_once() {
    let mut settled = Settled::default();
    for number in [7u8, 2, 9, 4, 1, 8] {
        settled.apply(is(service(&number.to_string(), &format!("10.96.0.{number}"))));
    }
    let mut met = Vec::new();
    while let Some(last) = {
        let next = settled.diff.services_after(met.last(), 2);
        met.extend(next.iter().cloned());
        next.last().cloned()
    } {
        // One that was met goes, and one comes after it.
        settled.apply(Event::Service(Change::Gone(last)));
        settled.apply(is(service("5", "10.96.0.5")));
    }
    let met: Vec<_> = met.iter().map(ObjectName::as_str).collect();
    let expected = ["1", "2", "4", "5", "7", "8", "9"].map(|name| format!("default/{name}"));
    assert_eq!(met, expected);
}
