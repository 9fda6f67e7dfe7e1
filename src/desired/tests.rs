//! Events, and what changes in the tables by them.

use std::net::IpAddr;

use super::*;
use crate::model::{
    Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Protocol, Service,
    ServicePort, Touched,
};
use crate::nft::Operation;
use crate::plan;

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
        ports: vec![EndpointPort::tcp("http", NonZeroU16::new(8080).unwrap())],
        endpoints: endpoints.iter().map(endpoint).collect(),
    }
}

/// State with every change committed.
#[derive(Default)]
struct Settled {
    cluster: Cluster,
    desired: Desired,
}

impl Settled {
    /// Applies an event; the changes in nft's words, and the problems.
    fn apply(&mut self, event: Event) -> (Vec<String>, Vec<Problem>) {
        let mut touched = Touched::default();
        self.cluster.apply(event, &mut touched);
        let mut problems = Vec::new();
        for name in touched.services.keys() {
            problems.extend(self.desired.render_service(name, &self.cluster, Lane::Slow));
        }
        let piece =
            plan::take(&mut self.desired, plan::Room { budget: usize::MAX, limit: usize::MAX });
        for (key, fragment) in piece.fragments {
            self.desired.tracker_mut().commit(key, fragment);
        }
        assert!(self.desired.is_settled());
        (piece.operations.iter().map(text).collect(), problems)
    }

    #[track_caller]
    fn check(&mut self, event: Event, expected: &[&str]) {
        let (changes, problems) = self.apply(event);
        assert_eq!(changes, expected);
        assert_eq!(problems, []);
    }
}

/// `+service-ips { … }`, without the table.
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
        &[
            "+no-endpoint-services { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:0 }",
            "+cluster-ips { 10.96.0.1 }",
        ],
    );
}

#[test]
fn the_first_endpoint_moves_a_frontend_from_refused_to_served() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    settled.check(
        slice_is(slice("web", &[(1, false)])),
        &[
            "-no-endpoint-services { 10.96.0.1 . tcp . 80 }",
            "+endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.1 . 8080 }",
            "+service-ips { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:1 }",
        ],
    );
}

#[test]
fn removing_an_endpoint_moves_the_last_into_its_slot() {
    web().check(
        slice_is(slice("web", &[(2, false), (3, false)])),
        &[
            "-endpoints { 10.96.0.1 . tcp . 80 . 0, 10.96.0.1 . tcp . 80 . 2 }",
            "-service-ips { 10.96.0.1 . tcp . 80 }",
            "+endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.3 . 8080 }",
            "+service-ips { 10.96.0.1 . tcp . 80 comment \"default/web:http\" : 1:2 }",
        ],
    );
}

#[test]
fn a_replaced_endpoint_costs_two_elements() {
    web().check(
        slice_is(slice("web", &[(1, false), (9, false), (3, false)])),
        &[
            "-endpoints { 10.96.0.1 . tcp . 80 . 1 }",
            "+endpoints { 10.96.0.1 . tcp . 80 . 1 : 10.244.0.9 . 8080 }",
        ],
    );
}

#[test]
fn an_endpoint_on_this_node_may_reach_itself() {
    let mut settled = Settled::default();
    settled.apply(is(service("web", "10.96.0.1")));
    let (changes, _) = settled.apply(slice_is(slice("web", &[(1, true)])));
    let hairpin = "+hairpin-connections { 10.244.0.1 . 10.244.0.1 . tcp . 8080 }";
    assert!(changes.contains(&hairpin.to_owned()), "{changes:?}");
}

#[test]
fn a_service_that_goes_leaves_nothing() {
    let mut settled = web();
    settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "web"))));
    assert_eq!(settled.desired.tracker().installed_keys().count(), 0);
}

#[test]
fn a_rename_with_the_same_address_replaces_only_the_comment() {
    let mut settled = Settled::default();
    settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
    settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
    let (changes, _) =
        settled.apply(Event::Service(Change::Gone(ObjectName::namespaced("default", "a"))));
    let moved = "+no-endpoint-services { 192.0.2.1 . tcp . 80 comment \"default/b:http\" : 1:0 }";
    assert!(changes.contains(&moved.to_owned()), "{changes:?}");
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
        let key = Key::Frontend {
            address: IpAddr::from([192, 0, 2, 1]),
            protocol: Protocol::Tcp,
            port: NonZeroU16::new(80).unwrap(),
        };
        assert_eq!(settled.desired.service_of(&key).unwrap().as_str(), "default/old");
    }
}

#[test]
fn whoever_takes_an_address_from_a_service_that_became_younger_yields_to_the_oldest() {
    let mut settled = Settled::default();
    for (name, ip, created) in [("a", "10.96.0.1", 0), ("b", "10.96.0.2", 1), ("c", "10.96.0.3", 2)]
    {
        settled.apply(is(with_external_ip(service(name, ip), created)));
    }
    // The holder is made anew, and another that waits is rendered before it.
    let anew = is(with_external_ip(service("a", "10.96.0.1"), 9));
    let mut touched = Touched::default();
    settled.cluster.apply(anew, &mut touched);
    settled.apply(slice_is(slice("c", &[(1, false)])));
    for name in touched.services.keys() {
        settled.desired.render_service(name, &settled.cluster, Lane::Slow);
    }
    let key = Key::Frontend {
        address: IpAddr::from([192, 0, 2, 1]),
        protocol: Protocol::Tcp,
        port: NonZeroU16::new(80).unwrap(),
    };
    assert_eq!(settled.desired.service_of(&key).unwrap().as_str(), "default/b");
}

#[test]
fn an_address_that_holder_and_waiting_service_give_back_together_is_removed() {
    let mut settled = Settled::default();
    settled.apply(is(with_external_ip(service("a", "10.96.0.1"), 0)));
    settled.apply(is(with_external_ip(service("b", "10.96.0.2"), 1)));
    // The one that waits knows no address any more before the holder's is rendered.
    settled.cluster.apply(is(service("b", "10.96.0.2")), &mut Touched::default());
    let (changes, _) = settled.apply(is(service("a", "10.96.0.1")));
    assert_eq!(changes, ["-no-endpoint-services { 192.0.2.1 . tcp . 80 }"]);
}

#[test]
fn a_service_has_nothing_in_a_family_without_cluster_ip() {
    let mut service = service("web", "10.96.0.1");
    service.ports[0].node_port = NonZeroU16::new(30_080);
    service.external_ips = vec!["fd00::1".parse().unwrap()];
    let mut settled = Settled::default();
    settled.apply(is(service));
    let families = settled.desired.tracker().installed_keys().map(Key::family);
    assert_eq!(families.filter(|family| *family == Family::Ip6).count(), 0);
}
