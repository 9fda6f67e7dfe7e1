//! The source for an API server, against one that replays real answers and injects faults.
//!
//! These tests need no namespace and no privileges: only a port of 127.0.0.1.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]
// Tests look at a few events of many, and measure time.
#![allow(clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::source::Wanted;
use daemon::source::kube::{
    ApiServer as Address, Formats, OnContact, Outlet, SourceError, SourceReport, follow_api_server,
    load_client,
};
use engine::model::{Arrival, Change, Event, Resource};
use engine::routing::served_services::SERVICE_PROXY_NAME;
use engine::routing::{DirectMode, DirectReturn, Routing, ServedServices};
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On, Request, object};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Nothing here takes longer, unless it is broken.
const LIMIT: Duration = Duration::from_secs(15);

/// The server answers JSON only: the tests of `apiserver_json.rs`.
const HAS_ONLY_JSON: bool = {
    let (name, other) = (env!("CARGO_CRATE_NAME").len(), "apiserver".len());
    name > other
};

/// Makes the server answer in the format that these tests are for.
fn server(server: ApiServer) -> ApiServer {
    if HAS_ONLY_JSON {
        server.answer_json();
    }
    server
}

/// The source under test, with its events and problems so far.
struct Source {
    events: mpsc::Receiver<Arrival>,
    reports: mpsc::Receiver<SourceReport>,
    task: JoinHandle<()>,
    seen: Vec<Event>,
    reported: Vec<SourceReport>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    fn follow(server: &ApiServer) -> Self {
        Self::follow_address(Address::of_kubeconfig(server.kubeconfig().to_owned()))
    }

    fn follow_address(address: Address) -> Self {
        Self::follow_with(address, Routing::default(), Formats::default())
    }

    fn follow_with(address: Address, routing: Routing, formats: Formats) -> Self {
        let (events_in, events) = mpsc::channel(16);
        let (reports_in, reports) = mpsc::channel(64);
        let contacts: OnContact = Arc::new(|_, _| {});
        let report = move |report| {
            let _ = reports_in.try_send(report);
        };
        let outlet = Outlet::new(events_in, report, contacts, Arc::new(|_, _| {}));
        let task = tokio::spawn(async move {
            follow_api_server(&address, Wanted::new("node1", &routing), formats, outlet).await;
        });
        Self { events, reports, task, seen: Vec::new(), reported: Vec::new() }
    }

    /// Receives until `condition` holds for the events and reports so far.
    #[track_caller]
    fn until<'a>(
        &'a mut self,
        condition: impl Fn(&[Event], &[SourceReport]) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let end = tokio::time::Instant::now() + LIMIT;
            while !condition(&self.seen, &self.reported) {
                let more = async {
                    tokio::select! {
                        Some(batch) = self.events.recv() => self.seen.extend(batch.events),
                        Some(report) = self.reports.recv() => self.reported.push(report),
                    }
                };
                if tokio::time::timeout_at(end, more).await.is_err() {
                    panic!("{caller}: not in time; {:#?}\n{:#?}", self.seen, self.reported);
                }
            }
        }
    }

    /// Receives until all four resources are listed.
    #[track_caller]
    fn until_listed(&mut self) -> impl Future<Output = ()> + '_ {
        self.until(|events, _| {
            [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs]
                .into_iter()
                .all(|resource| lists(events, resource) > 0)
        })
    }

    /// Receives until the services of the cluster, as the model would know them, are these.
    #[track_caller]
    fn until_services<'a>(&'a mut self, names: &'a [&'a str]) -> impl Future<Output = ()> + 'a {
        self.until(|events, _| services(events).into_keys().eq(names.iter().copied()))
    }
}

fn lists(events: &[Event], resource: Resource) -> usize {
    events.iter().filter(|event| **event == Event::Listed(resource)).count()
}

/// The services after these events, with their first port, by the rules of [`Event`].
fn services(events: &[Event]) -> BTreeMap<String, u16> {
    let (mut known, mut listed) = (BTreeMap::new(), None::<Vec<String>>);
    for event in events {
        let name = match event {
            Event::Service(Change::Is(service)) => {
                let port = service.ports.first().map_or(0, |port| port.port.get());
                known.insert(service.name.to_string(), port);
                service.name.to_string()
            }
            Event::Service(Change::Gone(name)) => {
                known.remove(name.as_str());
                continue;
            }
            Event::Service(Change::Invalid(name)) => name.to_string(),
            Event::Relist(Resource::Services) => {
                listed = Some(Vec::new());
                continue;
            }
            Event::Listed(Resource::Services) => {
                let listed = listed.take().expect("Listed comes after Relist");
                known.retain(|name, _| listed.contains(name));
                continue;
            }
            _ => continue,
        };
        if let Some(listed) = &mut listed {
            listed.push(name);
        }
    }
    known
}

fn of_services(requests: &[Request], on: On) -> usize {
    requests.iter().filter(|it| it.kind == Some(Kind::Service) && it.on == on).count()
}

fn is_trouble(report: &SourceReport, wanted: impl Fn(&SourceError) -> bool) -> bool {
    matches!(report, SourceReport::Trouble { error, .. } if wanted(error))
}

#[tokio::test]
async fn the_recorded_objects_are_listed_in_a_stream_with_the_selectors_of_kube_proxy() {
    let server = server(ApiServer::replaying());
    let mut source = Source::follow(&server);
    source.until_listed().await;
    assert!(services(&source.seen).contains_key("default/web"), "{:#?}", source.seen);

    let requests = server.requests();
    assert_eq!(requests.len(), 4, "{requests:#?}");
    for request in &requests {
        assert_eq!(request.on, On::StreamingList);
        assert_eq!(request.parameter("allowWatchBookmarks"), "true");
        assert_eq!(request.authorization, None, "the connection has no TLS");
        let labels = request.parameter("labelSelector");
        let fields = request.parameter("fieldSelector");
        let expected = match request.kind.unwrap() {
            Kind::Service => ("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"),
            Kind::EndpointSlice => ("!service.kubernetes.io/headless", ""),
            Kind::Node => ("", "metadata.name=node1"),
            Kind::ServiceCidr => ("", ""),
            Kind::Namespace => panic!("namespaces are not followed"),
        };
        assert_eq!((labels, fields), expected);
    }
}

#[tokio::test]
async fn all_nodes_are_followed_with_direct_return_and_others_are_peers() {
    let server = server(ApiServer::start());
    server.push(object::node("node1", "10.0.0.1"));
    server.push(object::node("node2", "10.0.0.2"));
    let direct_return = Some(DirectReturn::new(DirectMode::Annotated));
    let routing = Routing { direct_return, ..Routing::default() };
    let address = Address::of_kubeconfig(server.kubeconfig().to_owned());
    let mut source = Source::follow_with(address, routing, Formats::default());
    source.until_listed().await;
    let requests = server.requests();
    let of_nodes = requests.iter().find(|it| it.kind == Some(Kind::Node)).unwrap();
    assert_eq!(of_nodes.parameter("fieldSelector"), "");
    let named = |event: &Event| match event {
        Event::Node(Change::Is(node)) => Some(format!("node {}", node.name)),
        Event::Peer(Change::Is(peer)) if peer.ready => Some(format!("ready {}", peer.name)),
        Event::Peer(Change::Is(peer)) => Some(format!("{} {:?}", peer.name, peer.addresses)),
        Event::Peer(Change::Gone(name)) => Some(format!("gone {name}")),
        _ => None,
    };
    let found = source.seen.iter().filter_map(named).collect::<Vec<_>>();
    assert_eq!(found, ["node node1", "node2 [10.0.0.2]"]);
    let mut ready = object::node("node2", "10.0.0.2");
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    server.push(ready);
    let is = move |event: &Event, text: &str| named(event).as_deref() == Some(text);
    source.until(move |events, _| events.iter().any(|it| is(it, "ready node2"))).await;
    server.delete(Kind::Node, "node2");
    source.until(move |events, _| events.iter().any(|it| is(it, "gone node2"))).await;
}

#[tokio::test]
async fn every_request_names_the_program() {
    let server = server(ApiServer::start());
    server.misbehave(Kind::Service, On::StreamingList, Fault::Status(422, "no"), 1);
    let mut source = Source::follow(&server);
    source.until_listed().await;
    for request in server.requests() {
        assert!(request.user_agent.starts_with("deltaproxy/"), "{request:#?}");
    }
}

#[tokio::test]
async fn the_server_is_asked_for_the_services_of_the_settings_alone() {
    let server = server(ApiServer::start());
    let of_canary = |name, address| {
        object::labelled(object::service(name, address, 80), SERVICE_PROXY_NAME, "canary")
    };
    server.push(object::service("default/web", "10.96.0.7", 80));
    server.push(of_canary("default/tried", "10.96.0.8"));
    server.push(of_canary("default/excepted", "10.96.0.9"));
    server.push(object::labelled(of_canary("default/labelled", "10.96.0.10"), "team", "storage"));
    let services = ServedServices {
        proxy_name: Some("canary".parse().unwrap()),
        except: vec!["default/excepted".parse().unwrap()],
        labels: vec!["team!=storage".parse().unwrap()],
    };
    let address = Address::of_kubeconfig(server.kubeconfig().to_owned());
    let routing = Routing { services, ..Routing::default() };
    let mut source = Source::follow_with(address, routing, Formats::default());
    source.until_services(&["default/tried"]).await;
    let requests = server.requests();
    let of_services = requests.iter().find(|it| it.kind == Some(Kind::Service)).unwrap();
    let expected = "service.kubernetes.io/service-proxy-name=canary,team!=storage";
    assert_eq!(of_services.parameter("labelSelector"), expected);
    server.push(object::service("default/tried", "10.96.0.8", 80));
    server.push(of_canary("default/web", "10.96.0.7"));
    source.until_services(&["default/web"]).await;
}

#[tokio::test]
async fn recorded_changes_arrive_and_deletes_are_named() {
    let server = server(ApiServer::replaying());
    let mut source = Source::follow(&server);
    source.until_listed().await;
    server.replay(Kind::Service, "watch-services.http");
    server.replay(Kind::EndpointSlice, "watch-endpointslices.http");
    server.replay(Kind::Node, "watch-nodes.http");
    let gone = |event: &Event, text: &str| match event {
        Event::Service(Change::Gone(name)) | Event::EndpointSlice(Change::Gone(name)) => {
            name.as_str() == text
        }
        _ => false,
    };
    source.until(|events, _| events.iter().any(|event| gone(event, "default/web"))).await;
    source.until(|events, _| events.iter().any(|event| gone(event, "default/np-1"))).await;
    let zone = |event: &Event| match event {
        Event::Node(Change::Is(node)) => node.zone.as_deref() == Some("z2"),
        _ => false,
    };
    source.until(|events, _| events.iter().any(zone)).await;
}

#[tokio::test]
async fn a_pushed_object_arrives_without_a_further_request() {
    let server = server(ApiServer::start());
    let mut source = Source::follow(&server);
    source.until_listed().await;
    let before = server.requests().len();
    server.push(object::service("default/new", "10.96.0.7", 80));
    source.until_services(&["default/new"]).await;
    server.push(object::service("default/new", "10.96.0.7", 81));
    source.until(|events, _| services(events)["default/new"] == 81).await;
    server.delete(Kind::Service, "default/new");
    source.until_services(&[]).await;
    let requests = server.requests();
    assert_eq!(requests.len(), before, "{:#?}", &requests[before..]);
}

#[tokio::test]
async fn a_list_longer_than_a_page_is_read_in_pages_when_streaming_is_refused() {
    for refusal in [
        Fault::Status(422, "sendInitialEvents is forbidden for watch"),
        Fault::Status(400, "resourceVersionMatch is forbidden for watch"),
        Fault::ErrorEvent(500, "etcd does not support RequestWatchProgress"),
        Fault::ErrorEvent(500, "something else that etcd is too old for"),
    ] {
        let server = server(ApiServer::start());
        for i in 0..1201 {
            server.push(object::service(&format!("default/s{i}"), "10.96.0.7", 80));
        }
        server.misbehave(Kind::Service, On::StreamingList, refusal, usize::MAX);
        let mut source = Source::follow(&server);
        source.until(|events, _| lists(events, Resource::Services) == 1).await;
        assert_eq!(services(&source.seen).len(), 1201);
        server.push(object::service("default/later", "10.96.0.8", 80));
        source.until(|events, _| services(events).len() == 1202).await;

        // A second list: the refusal is remembered.
        server.stop();
        server.delete(Kind::Service, "default/s7");
        server.compact();
        server.reopen();
        source.until(|events, _| services(events).len() == 1201).await;
        let requests = server.requests();
        assert_eq!(of_services(&requests, On::StreamingList), 1);
        assert_eq!(of_services(&requests, On::List), 2);
        assert!(
            !source
                .reported
                .iter()
                .any(|r| is_trouble(r, |e| matches!(e, SourceError::Refused { .. })))
        );
    }
}

#[tokio::test]
async fn a_connection_that_breaks_goes_on_where_it_was() {
    let server = server(ApiServer::start());
    server.push(object::service("default/a", "10.96.0.1", 80));
    let mut source = Source::follow(&server);
    source.until_listed().await;
    server.stop();
    server.push(object::service("default/b", "10.96.0.2", 80));
    server.delete(Kind::Service, "default/a");
    server.reopen();
    source.until_services(&["default/b"]).await;
    assert_eq!(lists(&source.seen, Resource::Services), 1, "it was listed again");
}

const ALL: [Resource; 4] =
    [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];

/// A watch from a version that is in the future of the restored state is silent.
#[tokio::test]
async fn objects_are_listed_anew_at_once_after_etcd_was_restored_from_a_backup() {
    for streams in [true, false] {
        let server = server(ApiServer::with_web());
        if !streams {
            let refuse = |kind| {
                server.misbehave(kind, On::StreamingList, Fault::Status(422, "no"), usize::MAX);
            };
            Kind::ALL.into_iter().for_each(refuse);
        }
        let backup = server.backup();
        let mut source = Source::follow(&server);
        source.until_listed().await;
        for n in 1..100 {
            server.push(object::service("default/web", "10.96.0.10", 80 + n));
        }
        server.push(object::service("default/later", "10.96.0.11", 80));
        source.until_services(&["default/later", "default/web"]).await;
        let (held, before) = (server.version(), server.requests().len());
        server.stop();
        server.restore(backup);
        server.reopen();
        let (restored, began) = (server.version(), Instant::now());
        source.until(|events, _| ALL.into_iter().all(|it| lists(events, it) == 2)).await;
        assert!(began.elapsed() < LIMIT, "the versions are not reached again");
        assert_eq!(services(&source.seen), BTreeMap::from([("default/web".to_owned(), 80)]));
        for resource in ALL {
            let says_it = |it: &SourceReport| {
                matches!(it, SourceReport::Trouble { resource: Some(it), .. } if *it == resource)
                    && is_trouble(it, |error| matches!(error, SourceError::WentBack(_)))
            };
            source.until(|_, reports| reports.iter().any(says_it)).await;
        }
        let text = source.reported.iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains(&format!("went back from {held} to {restored}")), "{text}");
        // A read without a version is the only one that is never behind.
        let requests = server.requests();
        let checks: Vec<_> = requests[before..].iter().filter(|it| it.on == On::Check).collect();
        assert!((1..=ALL.len()).contains(&checks.len()), "{checks:#?}");
        assert!(checks.iter().all(|it| it.parameter("resourceVersion").is_empty()));
        server.push(object::service("default/new", "10.96.0.12", 80));
        source.until_services(&["default/new", "default/web"]).await;
        source
            .until(|_, reports| {
                let over = |it: &&SourceReport| matches!(it, SourceReport::Recovered { .. });
                reports.iter().filter(over).count() == ALL.len()
            })
            .await;
    }
}

/// Nothing vanishes before a second look, even if the backup has nothing.
#[tokio::test]
async fn a_backup_without_services_is_looked_at_again_before_all_go() {
    let server = server(ApiServer::start());
    let backup = server.backup();
    server.push(object::service("default/web", "10.96.0.10", 80));
    server.push(object::endpoint_slice("default/web-1", "web", &["10.244.1.5"], 8080));
    let mut source = Source::follow(&server);
    source.until_services(&["default/web"]).await;
    source.until_listed().await;
    server.stop();
    server.restore(backup);
    server.reopen();
    for reason in ["restored", "incomplete"] {
        let expected = |error: &SourceError| error.reason() == reason;
        source.until(|_, reports| reports.iter().any(|it| is_trouble(it, expected))).await;
    }
    assert_eq!(services(&source.seen).len(), 1, "a second look follows");
    source.until_services(&[]).await;
}

/// A server that answers a check with its refusal may still be watched.
#[tokio::test]
async fn a_watch_goes_on_without_the_right_to_list() {
    let server = server(ApiServer::start());
    server.forbid("list", "services");
    server.push(object::service("default/a", "10.96.0.1", 80));
    let mut source = Source::follow(&server);
    source.until_listed().await;
    server.stop();
    server.push(object::service("default/b", "10.96.0.2", 80));
    server.reopen();
    source.until_services(&["default/a", "default/b"]).await;
    assert_eq!(lists(&source.seen, Resource::Services), 1, "it was listed again");
    assert!(server.requests().iter().any(|it| it.on == On::Check));
}

#[tokio::test]
async fn a_delete_that_was_missed_is_found_by_listing_again() {
    let server = server(ApiServer::start());
    server.push(object::service("default/a", "10.96.0.1", 80));
    server.push(object::service("default/b", "10.96.0.2", 80));
    let mut source = Source::follow(&server);
    source.until_listed().await;
    server.stop();
    server.delete(Kind::Service, "default/a");
    server.compact();
    server.reopen();
    source.until_services(&["default/b"]).await;
    assert_eq!(lists(&source.seen, Resource::Services), 2);
    assert!(!source.seen.iter().any(|e| matches!(e, Event::Service(Change::Gone(_)))));
}

#[tokio::test]
async fn expired_versions_are_no_trouble() {
    let server = server(ApiServer::start());
    server.misbehave(Kind::Service, On::StreamingList, Fault::Status(422, "no"), usize::MAX);
    server.misbehave(Kind::Service, On::List, Fault::Trace("list-expired.http"), 1);
    server.misbehave(Kind::Service, On::Watch, Fault::Trace("watch-expired.http"), 1);
    server.push(object::service("default/a", "10.96.0.1", 80));
    let mut source = Source::follow(&server);
    source.until(|events, _| lists(events, Resource::Services) == 2).await;
    assert_eq!(services(&source.seen).len(), 1);
    assert!(source.reported.is_empty(), "{:?}", source.reported);
}

#[tokio::test]
async fn each_refusal_is_named_in_one_line_and_tried_again() {
    let server = server(ApiServer::replaying());
    server.misbehave(Kind::Service, On::Any, Fault::Trace("unauthorized.http"), 2);
    server.misbehave(Kind::EndpointSlice, On::Any, Fault::Status(403, "cannot list\nslices"), 2);
    server.misbehave(Kind::Node, On::Any, Fault::Status(429, "storage is starting"), 2);
    let mut source = Source::follow(&server);
    source.until_listed().await;
    source
        .until(|_, reported| {
            reported.iter().filter(|r| matches!(r, SourceReport::Recovered { .. })).count() == 3
        })
        .await;
    let reported = &source.reported;
    assert!(
        reported.iter().any(|r| is_trouble(r, |e| matches!(e, SourceError::Unauthorized { .. })))
    );
    assert!(reported.iter().any(|r| is_trouble(r, |e| matches!(e, SourceError::Forbidden { .. }))));
    assert!(
        reported
            .iter()
            .any(|r| is_trouble(r, |e| matches!(e, SourceError::Refused { code: 429, .. })))
    );
    for report in reported {
        assert!(!report.to_string().contains('\n'), "{report}");
    }
    // The same failure twice within two seconds is logged once.
    assert_eq!(reported.len(), 6, "{reported:#?}");
}

#[tokio::test]
async fn a_server_without_service_cidrs_has_none() {
    let server = server(ApiServer::replaying());
    server.misbehave(Kind::ServiceCidr, On::Any, Fault::Trace("notfound.http"), usize::MAX);
    let mut source = Source::follow(&server);
    source.until_listed().await;
    assert!(!source.seen.iter().any(|event| matches!(event, Event::ServiceCidr(_))));
    assert!(source.reported.is_empty(), "{:?}", source.reported);
}

#[tokio::test]
async fn an_object_of_the_wrong_shape_is_left_out_and_its_neighbours_are_not() {
    for refuse_streaming in [false, true] {
        let server = ApiServer::start();
        // No object in protobuf has the wrong shape.
        server.answer_json();
        if refuse_streaming {
            let fault = Fault::Status(422, "no");
            server.misbehave(Kind::Service, On::StreamingList, fault, usize::MAX);
        }
        let mut bad = object::service("default/bad", "10.96.0.9", 80);
        bad["spec"]["ports"][0]["port"] = json!("eighty");
        server.push(object::service("default/a", "10.96.0.1", 80));
        server.push(bad.clone());
        server.push(object::service("default/z", "10.96.0.2", 80));
        let mut source = Source::follow(&server);
        source.until_services(&["default/a", "default/z"]).await;
        let names_it = |report: &SourceReport| match report {
            SourceReport::Object(problem) => {
                problem.object.to_string() == "Service default/bad"
                    && problem.field == "spec.ports[0].port"
            }
            _ => false,
        };
        source.until(|_, reported| reported.iter().any(names_it)).await;

        // An object that becomes invalid keeps its former state.
        bad["metadata"]["name"] = "a".into();
        server.push(bad);
        server.push(object::service("default/later", "10.96.0.3", 80));
        source.until_services(&["default/a", "default/later", "default/z"]).await;
    }
}

#[tokio::test]
async fn streams_that_are_cut_slow_or_hold_garbage_end_in_the_same_state() {
    for fault in [
        Fault::CutAfter(0),
        Fault::CutAfter(1),
        Fault::CutAfter(2),
        Fault::Slow,
        Fault::GarbageAfter(0),
        Fault::GarbageAfter(2),
        Fault::StaleBookmarkAfter(1),
        Fault::EndAtOnce,
        Fault::ErrorEvent(504, "timeout"),
    ] {
        for on in [On::StreamingList, On::List, On::Watch] {
            let server = server(ApiServer::start());
            if on != On::StreamingList {
                let refusal = Fault::Status(422, "no");
                server.misbehave(Kind::Service, On::StreamingList, refusal, usize::MAX);
            }
            server.misbehave(Kind::Service, on, fault.clone(), 2);
            server.push(object::service("default/a", "10.96.0.1", 80));
            server.push(object::service("default/b", "10.96.0.2", 80));
            let mut source = Source::follow(&server);
            source.until_services(&["default/a", "default/b"]).await;
            server.push(object::service("default/c", "10.96.0.3", 80));
            server.push(object::service("default/d", "10.96.0.4", 80));
            server.delete(Kind::Service, "default/a");
            source.until_services(&["default/b", "default/c", "default/d"]).await;
        }
    }
}

#[tokio::test]
async fn lists_and_events_of_another_kind_or_version_remove_nothing() {
    for fault in [Fault::OtherKind("v1", "Node"), Fault::OtherKind("v2", "Service")] {
        for on in [On::StreamingList, On::List, On::Watch] {
            let server = server(ApiServer::start());
            if on == On::List {
                let refusal = Fault::Status(422, "no");
                server.misbehave(Kind::Service, On::StreamingList, refusal, usize::MAX);
            }
            server.push(object::service("default/a", "10.96.0.1", 80));
            server.push(object::service("default/b", "10.96.0.2", 80));
            let mut source = Source::follow(&server);
            source.until_listed().await;
            server.misbehave(Kind::Service, on, fault.clone(), 3);
            let seen = source.seen.len();
            server.stop();
            if on == On::Watch {
                server.push(object::service("default/a", "10.96.0.1", 81));
                server.delete(Kind::Service, "default/b");
            } else {
                server.compact();
            }
            server.reopen();
            let names_it = |error: &SourceError| error.to_string().contains("expected Service");
            source.until(|_, reports| reports.iter().any(|it| is_trouble(it, names_it))).await;
            let of_services = |it: &Event| {
                let ends = [Event::Relist(Resource::Services), Event::Listed(Resource::Services)];
                matches!(it, Event::Service(_)) || ends.contains(it)
            };
            assert!(!source.seen[seen..].iter().any(of_services), "{:#?}", &source.seen[seen..]);
            server.heal();
            server.push(object::service("default/c", "10.96.0.3", 80));
            source.until(|events, _| services(events).contains_key("default/c")).await;
            let has_b = services(&source.seen).contains_key("default/b");
            assert_eq!(has_b, on != On::Watch, "{fault:?} {on:?}");
        }
    }
}

/// In a stream of JSON the same takes longer, as the server sends twice as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_end_is_given_up_and_the_next_one_is_sent_on_when_it_is_complete() {
    for on in [On::StreamingList, On::List] {
        if HAS_ONLY_JSON && on == On::StreamingList {
            continue;
        }
        let server = server(ApiServer::with_web());
        if on == On::List {
            let refusal = Fault::Status(422, "no");
            server.misbehave(Kind::Service, On::StreamingList, refusal, usize::MAX);
        }
        server.misbehave(Kind::Service, on, Fault::Endless, 2);
        let mut source = Source::follow(&server);
        let no_room = |error: &SourceError| matches!(error, SourceError::NoRoom);
        source.until(|_, reports| reports.iter().any(|it| is_trouble(it, no_room))).await;
        let objects =
            |events: &[Event]| events.iter().filter(|it| matches!(it, Event::Service(_))).count();
        let sent = objects(&source.seen);
        assert!(sent <= 384, "{sent} objects of {on:?}");
        source.until_services(&["default/web"]).await;
        let again = objects(&source.seen);
        // The web service, and the rest of the first list that was on its way.
        assert!(again <= 384 + 1, "{sent} and then {again} objects of {on:?}");
        let requests = server.requests();
        assert_eq!(of_services(&requests, on), 3, "{on:?}");
        let last = requests.iter().rfind(|it| it.kind == Some(Kind::Service) && it.on == on);
        assert_eq!(last.unwrap().parameter("limit"), if on == On::List { "500" } else { "" });
    }
}

#[tokio::test]
async fn services_and_slices_that_all_vanish_from_a_list_are_looked_for_again() {
    for on in [On::StreamingList, On::List] {
        for times in [1, 2] {
            let server = server(ApiServer::with_web());
            let kinds = [Kind::Service, Kind::EndpointSlice];
            if on == On::List {
                for kind in kinds {
                    let refusal = Fault::Status(422, "no");
                    server.misbehave(kind, On::StreamingList, refusal, usize::MAX);
                }
            }
            let mut source = Source::follow(&server);
            source.until_listed().await;
            let before = server.requests().len();
            kinds.into_iter().for_each(|it| server.misbehave(it, on, Fault::Empty, times));
            server.stop();
            server.compact();
            server.reopen();
            source
                .until(|events, _| {
                    let again = [Resource::Services, Resource::EndpointSlices];
                    again.into_iter().all(|resource| lists(events, resource) == 2)
                })
                .await;
            assert_eq!(services(&source.seen).len(), 2 - times, "{on:?}");
            for resource in [Resource::Services, Resource::EndpointSlices] {
                let doubt = |error: &SourceError| matches!(error, SourceError::Emptied);
                let mut reports = source.reported.iter().filter(|it| {
                    matches!(it, SourceReport::Trouble { resource: Some(it), .. } if *it == resource)
                });
                assert!(reports.any(|it| is_trouble(it, doubt)), "{:#?}", source.reported);
            }
            let requests = server.requests();
            let looks = requests[before..]
                .iter()
                .filter(|it| it.kind == Some(Kind::Service) && it.on == on);
            let looks: Vec<_> = looks.collect();
            assert!(looks[1].at - looks[0].at >= Duration::from_secs(3), "{looks:#?}");
            assert_eq!(looks[1].parameter("resourceVersion"), "", "the newest state");
        }
    }
}

#[tokio::test]
async fn protobuf_that_cannot_be_read_or_is_refused_is_replaced_by_json() {
    for fault in [Fault::GarbageAfter(0), Fault::Status(406, "only JSON")] {
        let server = ApiServer::start();
        server.push(object::service("default/web", "10.96.0.10", 80));
        server.misbehave(Kind::Service, On::StreamingList, fault, 1);
        let mut source = Source::follow(&server);
        source.until_listed().await;
        source.until_services(&["default/web"]).await;
        let requests = server.requests();
        let accepted = |kind| requests.iter().filter(move |it| it.kind == Some(kind));
        let are_protobuf: Vec<_> = accepted(Kind::Service).map(asks_for_protobuf).collect();
        assert_eq!(are_protobuf, [true, false]);
        assert!(accepted(Kind::EndpointSlice).all(asks_for_protobuf));
    }
}

#[tokio::test]
async fn a_source_that_takes_json_alone_never_asks_for_protobuf() {
    for refuses in [false, true] {
        let server = ApiServer::start();
        server.push(object::service("default/web", "10.96.0.10", 80));
        if refuses {
            server.misbehave(Kind::Service, On::Any, Fault::Status(406, "not even JSON"), 1);
        }
        let address = Address::of_kubeconfig(server.kubeconfig().to_owned());
        let mut source = Source::follow_with(address, Routing::default(), Formats::Json);
        source.until_listed().await;
        source.until_services(&["default/web"]).await;
        let requests = server.requests();
        let expected = "application/json;drop=metadata.managedFields";
        assert!(requests.iter().all(|it| it.accept == expected), "{requests:#?}");
        // JSON does not replace itself: the refusal is a failure.
        let is_reported =
            source.reported.iter().any(|it| is_trouble(it, |error| error.reason() == "refused"));
        assert_eq!(is_reported, refuses, "{:#?}", source.reported);
    }
}

fn asks_for_protobuf(request: &Request) -> bool {
    request.accept.starts_with("application/vnd.kubernetes.protobuf;drop=metadata.managedFields,")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_every_watch_gets_no_burst_of_requests() {
    let server = server(ApiServer::start());
    server.misbehave(Kind::Service, On::StreamingList, Fault::Status(422, "no"), usize::MAX);
    server.misbehave(Kind::Service, On::Watch, Fault::EndAtOnce, usize::MAX);
    let start = Instant::now();
    let source = Source::follow(&server);
    server.wait_for_requests(LIMIT, |requests| of_services(requests, On::Watch) >= 8);
    // A burst of 8 requests is free; the 10th (two were the lists) is sent after two seconds.
    assert!(start.elapsed() >= Duration::from_millis(1900), "{:?}", start.elapsed());
    drop(source);
}

#[tokio::test]
async fn a_server_that_is_away_is_tried_again_quickly_and_then_seldom() {
    let server = server(ApiServer::start());
    server.push(object::service("default/a", "10.96.0.1", 80));
    server.stop();
    let mut source = Source::follow(&server);
    let of_services = |reported: &[SourceReport]| -> Vec<Duration> {
        let waits = reported.iter().filter_map(|report| match report {
            SourceReport::Trouble {
                resource: Some(Resource::Services), error, retry_in, ..
            } => {
                assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
                Some(*retry_in)
            }
            _ => None,
        });
        waits.collect()
    };
    source.until(|_, reported| of_services(reported).len() == 2).await;
    let waits = of_services(&source.reported);
    assert!(waits[0] <= Duration::from_millis(100), "{waits:?}");
    assert!(waits[1] >= Duration::from_secs(2), "{waits:?}");
    assert!(source.seen.is_empty(), "{:?}", source.seen);
    server.reopen();
    source.until_services(&["default/a"]).await;
}

#[tokio::test]
async fn a_kubeconfig_that_appears_later_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let mut source = Source::follow_address(Address::of_kubeconfig(path.clone()));
    source
        .until(|_, reported| {
            reported
                .iter()
                .any(|r| is_trouble(r, |e| matches!(e, SourceError::KubeconfigMissing { .. })))
        })
        .await;
    let server = server(ApiServer::replaying());
    std::fs::copy(server.kubeconfig(), &path).unwrap();
    source.until_listed().await;
    let renewed = source.reported.iter().filter(|it| matches!(it, SourceReport::Renewed)).count();
    assert_eq!(renewed, 1, "{:?}", source.reported);
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = async |text: &str| {
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        let server = Address::of_kubeconfig(path);
        load_client(&server, Arc::new(|_, _| {})).await.map(|_| ()).unwrap_err().to_string()
    };
    assert!(load("{not yaml").await.contains("kubeconfig cannot be used: "));
    assert!(load("apiVersion: v1\nkind: Config\n").await.contains("context"));
    let missing = Address::of_kubeconfig("/nonexistent/kubeconfig");
    let missing = load_client(&missing, Arc::new(|_, _| {})).await.map(|_| ()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "kubeconfig /nonexistent/kubeconfig does not exist: check --kubeconfig"
    );
}

#[tokio::test]
async fn a_kubeconfig_that_is_a_pipe_blocks_nothing_and_is_read_when_it_is_written() {
    let server = server(ApiServer::with_web());
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("kubeconfig");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let address = Address::of_kubeconfig(pipe.clone());
    let loading = load_client(&address, Arc::new(|_, _| {}));
    tokio::pin!(loading);
    tokio::select! {
        _ = &mut loading => panic!("nobody has written the kubeconfig"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
    let text = std::fs::read(server.kubeconfig()).unwrap();
    let writing = tokio::task::spawn_blocking(move || std::fs::write(pipe, text).unwrap());
    tokio::time::timeout(LIMIT, loading).await.unwrap().unwrap();
    writing.await.unwrap();
}

#[tokio::test]
async fn credentials_without_an_end_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, pipe) = (folder.path().join("kubeconfig"), folder.path().join("pipe"));
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    std::fs::File::create(folder.path().join("long")).unwrap().set_len(1 << 40).unwrap();
    let load = async |path: &std::path::Path| {
        let address = Address::of_kubeconfig(path);
        let loading = load_client(&address, Arc::new(|_, _| {}));
        let loaded = tokio::time::timeout(LIMIT, async { loading.await.map(|_| ()) }).await;
        loaded.unwrap().unwrap_err().to_string()
    };
    let error = load("/dev/zero".as_ref()).await;
    assert!(error.contains("kubeconfig /dev/zero cannot be used: "), "{error}");
    assert!(error.contains("it is longer than 16 MiB"), "{error}");
    for (file, expected) in [
        ("/dev/zero", "/dev/zero: it is not a regular file"),
        ("pipe", "pipe: it is not a regular file"),
        ("long", "long: it is longer than 16 MiB"),
    ] {
        for (cluster, user) in [
            (format!("certificate-authority: {file}"), "token: x".to_owned()),
            ("tls-server-name: a".to_owned(), format!("tokenFile: {file}")),
            ("tls-server-name: a".to_owned(), format!("client-certificate: {file}")),
            (
                "tls-server-name: a".to_owned(),
                format!("client-certificate-data: aaaa, client-key: {file}"),
            ),
        ] {
            let text = format!(
                "current-context: c\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\n\
                 users: [{{name: c, user: {{{user}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
            let error = load(&path).await;
            assert!(error.contains(expected), "{cluster} {user}: {error}");
        }
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_after_the_time_that_it_gives() {
    let server = server(ApiServer::with_web());
    server.misbehave(Kind::EndpointSlice, On::Any, Fault::Busy(1), 2);
    let mut source = Source::follow(&server);
    source.until_listed().await;
    let requests = server.requests();
    let times = requests.iter().filter(|it| it.kind == Some(Kind::EndpointSlice)).map(|it| it.at);
    let times: Vec<_> = times.collect();
    for pair in times[..3].windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(1), "{times:?}");
    }
}

/// No list is answered here, so the first one never ends.
#[tokio::test]
async fn lists_take_turns_after_an_answer_of_a_busy_server() {
    const KINDS: [Kind; 4] = [Kind::Service, Kind::EndpointSlice, Kind::Node, Kind::ServiceCidr];
    for (busy, expected) in [(0, 4), (1, 1)] {
        let server = server(ApiServer::with_web());
        server.misbehave(Kind::Service, On::Any, Fault::Busy(0), busy);
        let mut source = Source::follow(&server);
        source.until_listed().await;
        for kind in KINDS {
            server.misbehave(kind, On::Watch, Fault::ErrorEvent(410, "too old"), 1);
            server.misbehave(kind, On::StreamingList, Fault::NoAnswer, 1);
        }
        server.stop();
        let before = server.requests().len();
        server.reopen();
        let lists = || {
            let requests = server.requests();
            requests[before..].iter().filter(|request| request.on == On::StreamingList).count()
        };
        // Without turns, each list begins about a second after its watch failed.
        let end = Instant::now() + Duration::from_secs(3);
        while lists() < 4 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(lists(), expected);
    }
}

/// The lists of services among the requests, as version and limit.
fn lists_of_services(requests: &[Request]) -> Vec<(&str, &str)> {
    let lists = requests.iter().filter(|it| it.kind == Some(Kind::Service) && it.on != On::Watch);
    let lists = lists.filter(|it| it.on != On::Check);
    lists.map(|it| (it.parameter("resourceVersion"), it.parameter("limit"))).collect()
}

#[tokio::test]
async fn lists_are_those_of_the_watch_cache_and_never_older_than_an_object_that_was_seen() {
    const TOO_NEW: &str = "Timeout: Too large resource version: 12, current: 11";
    for (on, refusal) in [(On::StreamingList, None), (On::List, Some("not supported"))] {
        for (expired, message) in [(410, "too old resource version"), (504, TOO_NEW)] {
            let server = server(ApiServer::start());
            if let Some(message) = refusal {
                let fault = Fault::Status(422, message);
                server.misbehave(Kind::Service, On::StreamingList, fault, usize::MAX);
            }
            server.push(object::service("default/a", "10.96.0.1", 80));
            let mut source = Source::follow(&server);
            source.until_listed().await;
            server.push(object::service("default/b", "10.96.0.2", 80));
            source.until_services(&["default/a", "default/b"]).await;
            let first = lists_of_services(&server.requests()).len();
            let expire = || {
                server.misbehave(Kind::Service, On::Watch, Fault::ErrorEvent(410, "too old"), 1);
                server.stop();
                server.reopen();
            };
            expire();
            source.until(|events, _| lists(events, Resource::Services) == 2).await;
            server.misbehave(Kind::Service, on, Fault::Status(expired, message), 1);
            expire();
            source.until(|events, _| lists(events, Resource::Services) == 3).await;

            let requests = server.requests();
            let limit = if on == On::List { "500" } else { "" };
            let seen = "12";
            let expected = [("0", ""), (seen, ""), (seen, ""), ("", limit)];
            assert_eq!(lists_of_services(&requests)[first - 1..], expected, "{expired}");
            // The server was stopped; all else is normal.
            let other = |error: &SourceError| error.reason() != "unreachable";
            let others = source.reported.iter().filter(|it| is_trouble(it, other)).count();
            assert_eq!(others, 0, "{:#?}", source.reported);
        }
    }
}

#[tokio::test]
async fn a_list_goes_on_at_the_page_that_a_busy_server_refused() {
    let server = server(ApiServer::start());
    for i in 0..1201 {
        server.push(object::service(&format!("default/s{i}"), "10.96.0.7", 80));
    }
    server.misbehave(Kind::Service, On::StreamingList, Fault::Status(422, "no"), usize::MAX);
    // Without a version, lists have pages. A list is not changed by `Slow`.
    let faults = [Fault::Status(410, "too old"), Fault::Slow, Fault::Busy(1), Fault::CutAfter(0)];
    for fault in faults {
        server.misbehave(Kind::Service, On::List, fault, 1);
    }
    let mut source = Source::follow(&server);
    source.until(|events, _| lists(events, Resource::Services) == 1).await;
    assert_eq!(services(&source.seen).len(), 1201);
    let relists = source.seen.iter().filter(|it| **it == Event::Relist(Resource::Services)).count();
    assert_eq!(relists, 1);
    let requests = server.requests();
    let pages = requests.iter().filter(|it| it.kind == Some(Kind::Service) && it.on == On::List);
    let pages: Vec<_> = pages.map(|it| it.parameter("continue")).collect();
    let [_, first, refused, cut, second, third] = pages[..] else { panic!("{pages:?}") };
    assert_eq!(first, "");
    assert!(refused == second && cut == second && second != third, "{pages:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_gets_no_whole_list_when_it_is_back() {
    let server = server(ApiServer::with_web());
    let mut source = Source::follow(&server);
    source.until_listed().await;
    let before = server.requests().len();
    server.stop();
    source.until(|_, reported| reported.len() >= 8).await;
    server.reopen();
    server.wait_for_requests(LIMIT, |requests| requests.len() >= before + Kind::ALL.len());
    let requests = server.requests();
    let small = |it: &Request| matches!(it.on, On::Watch | On::Check);
    assert!(requests[before..].iter().all(small), "{requests:#?}");
}
