//! The source for a silent API server: a healthy one, a frozen one, and one behind a firewall.
//!
//! The clock of the source jumps. Sockets, server and kernel are real.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use daemon::source::Wanted;
use daemon::source::kube::{
    ApiServer as Address, Contact, Formats, OnContact, Outlet, SourceReport, follow_api_server,
};
use engine::model::{Event, HostAddresses, Resource};
use engine::routing::Routing;
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On, Request, object};
use nft::expression::Immediate;
use nft::kernel::{Kernel, Nftables};
use nft::{
    BaseChain, Chain, Family, HookPoint, Operation, Rule, Table, TableFlags, TableRef, Transaction,
    Verdict,
};
use nix::sched::{CloneFlags, unshare};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

/// Nothing here takes longer, unless it is broken.
const LIMIT: Duration = Duration::from_secs(15);

const SECOND: Duration = Duration::from_secs(1);

/// Services, EndpointSlices, Nodes and ServiceCIDRs.
const RESOURCES: usize = 4;

/// Runs `test` in a thread with a new network namespace, which ends with it.
fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let isolated = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect(
            "run as root, or: sh netlink-tests/in-namespaces cargo test --offline --workspace \
             --no-default-features --test silence",
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test());
    };
    thread::spawn(isolated).join().unwrap();
}

/// What the source has sent so far.
#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    reports: Vec<SourceReport>,
    heard: Vec<Resource>,
    lost: Vec<(Resource, &'static str)>,
}

impl Seen {
    fn hears_all(&self) -> bool {
        let all =
            [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];
        all.iter().all(|resource| self.heard.contains(resource))
    }
}

type Shared = Arc<Mutex<Seen>>;

/// Follows the server until everything is listed.
async fn follow(server: &ApiServer) -> Shared {
    follow_at(server, watch::channel(HostAddresses::default()).0).await
}

/// The same, with the addresses of this node.
async fn follow_at(server: &ApiServer, addresses: watch::Sender<HostAddresses>) -> Shared {
    let seen = Shared::default();
    let (of_events, of_reports, of_contacts) = (seen.clone(), seen.clone(), seen.clone());
    let (sender, mut batches) = mpsc::channel(16);
    let report = move |report| of_reports.lock().unwrap().reports.push(report);
    let contacts: OnContact = Arc::new(move |resource, contact| {
        let mut seen = of_contacts.lock().unwrap();
        match contact {
            Contact::Heard => seen.heard.push(resource),
            Contact::Lost(reason) => seen.lost.push((resource, reason)),
        }
    });
    let mut outlet = Outlet::new(sender, report, contacts, Arc::new(|_, _| {}));
    outlet.addresses = Some(addresses);
    let address = Address::of_kubeconfig(server.kubeconfig().to_owned());
    let routing = Routing::default();
    tokio::spawn(async move {
        follow_api_server(&address, Wanted::new("node1", &routing), Formats::default(), outlet)
            .await
    });
    tokio::spawn(async move {
        while let Some(batch) = batches.recv().await {
            of_events.lock().unwrap().events.extend(batch.events);
        }
    });
    until(|| {
        seen.lock().unwrap().events.iter().filter(|event| matches!(event, Event::Listed(_))).count()
            == RESOURCES
    })
    .await;
    seen
}

/// Waits in real time.
#[track_caller]
fn until(condition: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let start = std::time::SystemTime::now();
        while !condition() {
            assert!(start.elapsed().unwrap() < LIMIT, "{caller}: not in time");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Advances the clock of the source.
async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[test]
fn a_healthy_server_without_events_is_never_lost() {
    in_namespace(async || {
        let server = ApiServer::with_web();
        let seen = follow(&server).await;
        for round in 1..=4 {
            seen.lock().unwrap().heard.clear();
            jump(SECOND * 76).await;
            until(|| server.requests().len() >= RESOURCES * (2 * round + 1)).await;
            // A further jump before the answers would make them late. That of a check is heard, that of
            // the watch after it leaves no trace, and takes microseconds.
            until(|| seen.lock().unwrap().hears_all()).await;
            sleep(SECOND).await;
        }
        let requests = server.requests();
        let (checks, watches): (Vec<_>, Vec<_>) =
            requests[RESOURCES..].iter().partition(|it| it.on == On::Check);
        assert_eq!([checks.len(), watches.len()], [RESOURCES * 4; 2], "{requests:#?}");
        for request in &watches {
            assert_eq!(request.on, On::Watch);
            let versions = [*request, watches[0]].map(|it| it.parameter("resourceVersion"));
            assert_eq!(versions[0], versions[1]);
        }
        server.push(object::service("default/new", "10.96.0.7", 80));
        until(|| format!("{:?}", seen.lock().unwrap().events).contains("default/new")).await;
        let seen = seen.lock().unwrap();
        assert!(seen.reports.is_empty() && seen.lost.is_empty(), "{seen:#?}");
    });
}

#[test]
fn watches_from_an_address_that_was_removed_begin_again_at_once() {
    in_namespace(async || {
        let server = ApiServer::with_web();
        let [own, other] = [[127, 0, 0, 1], [192, 0, 2, 1]].map(IpAddr::from);
        let addresses = watch::channel(HostAddresses::from(vec![own, other])).0;
        let seen = follow_at(&server, addresses.clone()).await;
        addresses.send_replace(vec![own].into());
        addresses.send_replace(vec![other].into());
        until(|| server.requests().len() >= RESOURCES * 3).await;
        let requests = server.requests();
        let small = |it: &Request| matches!(it.on, On::Watch | On::Check);
        assert!(requests[RESOURCES..].iter().all(small), "{requests:#?}");
        server.push(object::service("default/new", "10.96.0.7", 80));
        until(|| format!("{:?}", seen.lock().unwrap().events).contains("default/new")).await;
        let seen = seen.lock().unwrap();
        assert!(seen.reports.is_empty() && seen.lost.is_empty(), "{seen:#?}");
        assert_eq!(server.requests().len(), RESOURCES * 3, "the other address was not in use");
    });
}

#[test]
fn a_frozen_server_is_lost_after_90_s() {
    in_namespace(async || {
        let server = ApiServer::with_web();
        let seen = follow(&server).await;
        for kind in [Kind::Service, Kind::EndpointSlice, Kind::Node, Kind::ServiceCidr] {
            server.misbehave(kind, On::Any, Fault::NoAnswer, usize::MAX);
        }
        jump(SECOND * 75).await;
        until(|| server.requests().len() >= RESOURCES * 2).await;
        assert!(seen.lock().unwrap().lost.is_empty());
        jump(SECOND * 15).await;
        until(|| seen.lock().unwrap().lost.len() == RESOURCES).await;
        let seen = seen.lock().unwrap();
        assert!(seen.lost.iter().all(|(_, reason)| *reason == "unreachable"), "{seen:#?}");
        assert_eq!(seen.reports.len(), RESOURCES, "{:#?}", seen.reports);
        for report in &seen.reports {
            let SourceReport::Trouble { error, .. } = report else { panic!("{report:?}") };
            let text = error.to_string();
            assert!(text.starts_with("the API server cannot be reached: "), "{text}");
            assert!(text.ends_with("nothing arrived for 15 s"), "{text}");
        }
    });
}

fn firewall() -> TableRef {
    TableRef::new(Family::Ip, "firewall")
}

/// Drops all packets that arrive.
fn drop_packets(kernel: &mut Nftables) {
    let TableRef { family, name } = firewall();
    let table = Table { family, name, flags: TableFlags::default(), comment: None };
    let base = BaseChain::new("filter", HookPoint::Input, 0);
    let chain = Chain::at_hook("input", base);
    let expressions = vec![Immediate::verdict(Verdict::Drop)];
    let rule = Rule { chain: chain.name.clone(), expressions, comment: None };
    let operations = vec![
        Operation::AddTable(table),
        Operation::AddChain(firewall(), chain),
        Operation::AddRule(firewall(), rule),
    ];
    kernel.commit(&Transaction { operations }).unwrap();
}

#[test]
fn a_server_whose_packets_are_dropped_is_lost_within_90_s_and_found_again() {
    in_namespace(async || {
        let server = ApiServer::with_web();
        let seen = follow(&server).await;
        let mut kernel = Nftables::open().unwrap();
        drop_packets(&mut kernel);
        let start = Instant::now();
        while seen.lock().unwrap().lost.len() < RESOURCES {
            assert!(start.elapsed() < SECOND * 92, "{:#?}", seen.lock().unwrap());
            jump(SECOND).await;
            sleep(Duration::from_millis(5)).await;
        }
        assert!(start.elapsed() > SECOND * 65, "{:?}", start.elapsed());
        let operations = vec![Operation::DeleteTable(firewall())];
        kernel.commit(&Transaction { operations }).unwrap();
        let recovered = || {
            seen.lock()
                .unwrap()
                .reports
                .iter()
                .filter(|report| matches!(report, SourceReport::Recovered { .. }))
                .count()
        };
        until(|| recovered() == RESOURCES).await;
    });
}
