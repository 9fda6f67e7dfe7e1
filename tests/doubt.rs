//! The daemon with flowtables after another program changed its tables.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod tables;

use std::pin::Pin;
use std::time::Duration;

use daemon::observe::Observe;
use daemon::run::{Left, Links, Parts, Run, RunError};
use daemon::writer::{Requests, Writer};
use engine::Engine;
use engine::flowtable::Offload;
use engine::model::{Arrival, Event, Resource};
use engine::routing::Routing;
use engine::ruleset::{self, flowtable};
use engine::{Link, LinkNews};
use fake_kernel::Fake;
use nft::kernel::Kernel;
use nft::{Device, Family, Name, Operation, TableFlags, Transaction};
use tables::contents;
use tokio::sync::mpsc;
use tokio::time::{Instant, advance};

/// A daemon that is polled by hand, in virtual time.
struct Daemon {
    run: Pin<Box<dyn Future<Output = Result<Left, RunError>>>>,
    requests: Requests<Fake>,
    _events: mpsc::Sender<Arrival>,
    news: mpsc::Sender<LinkNews>,
    observe: Observe,
    kernel: Fake,
}

impl Daemon {
    /// One with flowtables, on a node with one device.
    async fn start() -> Self {
        let routing = Routing { flowtable: Some(Offload::default()), ..Routing::default() };
        let (writer, requests) = Writer::without_thread();
        let (events, queue) = mpsc::channel(1);
        let (news, learned) = mpsc::channel(1);
        let observe = Observe::new();
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.suit_kernel(None);
        let links = Links { devices: Some(learned), ..Links::default() };
        let parts = Parts { links, ..Parts::default() };
        let run = Run::new(engine, writer, queue, observe.clone(), parts);
        let run = Box::pin(run.until(std::future::pending()));
        let eth0 = Link { index: 2, name: "eth0".into(), is_loopback: false, has_master: false };
        news.send(LinkNews::All(vec![eth0])).await.unwrap();
        let listed = Resource::ALL.map(Event::Listed).to_vec();
        events.send(Arrival::new(listed, Instant::now().into_std())).await.unwrap();
        let kernel = Fake::new();
        let mut daemon = Self { run, requests, _events: events, news, observe, kernel };
        daemon.pass().await;
        daemon
    }

    /// Lets some seconds pass.
    async fn pass(&mut self) {
        for _ in 0..100 {
            advance(Duration::from_millis(50)).await;
            self.poll();
            while self.requests.run_next(&mut self.kernel) {
                self.poll();
            }
        }
    }

    fn poll(&mut self) {
        let waker = futures::task::noop_waker();
        let ended = self.run.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        assert!(ended.is_pending(), "the loop ended: {ended:?}");
    }

    /// How often the tables were read back.
    fn full_syncs(&self) -> String {
        let text = self.observe.metrics_text();
        let counts = |line: &&str| {
            line.starts_with("kubeproxy_sync_full_proxy_rules_duration_seconds_count")
        };
        text.lines().find(counts).unwrap().to_owned()
    }

    /// The numbers of devices that commits about devices added and removed, by family.
    fn history_of_devices(&self) -> Vec<(String, u64, u64)> {
        let history = self.observe.history();
        let commits = history["commits"].as_array().unwrap().iter();
        let of_devices = commits.filter(|it| it["causes"] == serde_json::json!(["devices"]));
        let counted = of_devices.map(|it| {
            let count = |field| it[field].as_u64().unwrap();
            (it["family"].as_str().unwrap().to_owned(), count("added"), count("removed"))
        });
        counted.collect()
    }

    fn devices(&mut self) -> Vec<Device> {
        let contents = self.kernel.read_table(&ruleset::table(Family::Ip)).unwrap().unwrap();
        contents.flowtables.into_iter().flat_map(|it| it.devices).collect()
    }
}

#[test]
fn commits_about_devices_are_in_the_history_with_their_cause() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::unconstrained(async {
        let mut daemon = Daemon::start().await;
        let both = |added, removed| ["IPv6", "IPv4"].map(|it| (it.to_owned(), added, removed));
        assert_eq!(daemon.history_of_devices(), both(1, 0));
        let eth1 = Link { index: 3, name: "eth1".into(), is_loopback: false, has_master: false };
        daemon.news.send(LinkNews::All(vec![eth1])).await.unwrap();
        daemon.pass().await;
        assert_eq!(daemon.devices().len(), 2);
        assert_eq!(daemon.history_of_devices(), [both(1, 0), both(1, 0)].concat());
    }));
}

#[test]
fn a_change_by_another_program_causes_no_reading_although_there_are_flowtables() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::unconstrained(async {
        let mut daemon = Daemon::start().await;
        let (before, full_syncs) = (contents(&mut daemon.kernel), daemon.full_syncs());
        let eth0 = vec![Device::Named("eth0".into())];
        assert_eq!(daemon.devices(), eth0);
        let table = || ruleset::table(Family::Ip);
        let changes = [
            Operation::FlushChain(table(), Name::Borrowed("nat-output")),
            Operation::DeleteDevices(table(), flowtable(), eth0.clone()),
        ];
        for operation in changes {
            daemon.kernel.tamper(&Transaction { operations: vec![operation.clone()] }).unwrap();
            daemon.pass().await;
            assert_eq!(contents(&mut daemon.kernel), before, "{operation}");
            assert_eq!(daemon.devices(), eth0, "{operation}");
            assert_eq!(daemon.full_syncs(), full_syncs, "the tables were read: {operation}");
        }
    }));
}
