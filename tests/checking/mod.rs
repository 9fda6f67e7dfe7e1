//! The background check on any kernel, in virtual time: the tables change without a notice, and the
//! daemon must find the differences.

#![allow(dead_code, reason = "each test that includes it uses a part")]

pub(crate) mod urgent;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::observe::Observe;
use daemon::run::{Left, Parts, Run, RunError};
use daemon::writer::{Requests, Writer};
use engine::model::{
    Arrival, Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName,
    PortRange, Protocol, Resource, Service, ServicePort, TrafficPolicy,
};
use engine::routing::Routing;
use engine::ruleset::{self, Layouts, OptionalSets, SetId};
use engine::{Engine, GRACE};
use nft::kernel::{ElementRead, Kernel};
use nft::{Element, Family, Name, Operation, TableFlags, Transaction, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, advance};

use crate::tables::contents;
use crate::world::kernel::Shared;

/// The time in which everything is compared.
const PERIOD: Duration = Duration::from_secs(2);

/// After this time everything was compared twice, and what differed a second time.
const TWO_ROUNDS: Duration = Duration::from_secs(7);

/// Time that passes at once.
const STEP: Duration = Duration::from_millis(20);

/// A daemon that is polled by hand, and its kernel.
pub(crate) struct Checked<K> {
    run: Pin<Box<dyn Future<Output = Result<Left, RunError>>>>,
    requests: Requests<K>,
    events: mpsc::Sender<Arrival>,
    observe: Observe,
    pub(crate) kernel: K,
}

impl<K: Shared> Checked<K> {
    /// One that has compared everything once.
    pub(crate) async fn start(kernel: K, objects: Vec<Event>) -> Self {
        let mut daemon = Self::start_every(PERIOD, kernel, objects).await;
        daemon.pass(TWO_ROUNDS).await;
        daemon
    }

    pub(crate) async fn start_every(period: Duration, kernel: K, objects: Vec<Event>) -> Self {
        let flags = kernel.flags_of_own_tables();
        Self::start_with(period, flags, kernel, objects).await
    }

    async fn start_with(
        period: Duration,
        flags: TableFlags,
        kernel: K,
        objects: Vec<Event>,
    ) -> Self {
        let (writer, requests) = Writer::without_thread();
        let (events, queue) = mpsc::channel(64);
        let observe = Observe::new();
        let engine = Engine::new(Routing::default(), flags);
        let parts = Parts { check_period: period, ..Parts::default() };
        let run = Run::new(engine, writer, queue, observe.clone(), parts);
        let run = Box::pin(run.until(std::future::pending()));
        let mut daemon = Self { run, requests, events, observe, kernel };
        daemon.send(objects);
        daemon.send(Resource::ALL.map(Event::Listed).to_vec());
        daemon.pass(GRACE * 4).await;
        daemon
    }

    pub(crate) fn send(&mut self, events: Vec<Event>) {
        let now = Instant::now().into_std();
        self.events.try_send(Arrival::new(events, now)).expect("the loop takes in all events");
    }

    /// Lets time pass, with all that the daemon does meanwhile.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.poll();
            while self.requests.run_next(&mut self.kernel) {
                self.poll();
            }
            if Instant::now() >= end {
                return;
            }
            advance(STEP).await;
        }
    }

    fn poll(&mut self) {
        let waker = futures::task::noop_waker();
        let ended = self.run.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        assert!(ended.is_pending(), "the loop ended: {ended:?}");
    }

    /// The value of a metric, by name and labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.observe.metrics_text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {text}")).parse().expect("a whole number")
    }

    /// Differences found so far, of these kinds in their order.
    pub(crate) fn differences(&self) -> [u64; 5] {
        KINDS.map(|kind| {
            self.metric(&format!("deltaproxy_check_differences_total{{kind=\"{kind}\"}}"))
        })
    }

    /// Transactions committed so far.
    fn commits(&self) -> u64 {
        self.metric("deltaproxy_transactions_total{result=\"committed\"}")
    }

    /// How often the tables were read back.
    fn full_syncs(&self) -> u64 {
        self.metric("kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}")
    }

    fn refusals(&self) -> u64 {
        self.metric("deltaproxy_transactions_total{result=\"refused\"}")
    }

    /// The key of each element of a set.
    fn keys(&mut self, family: Family, set: SetId) -> Vec<Element> {
        let mut keys = Vec::new();
        let table = ruleset::table(family);
        let mut each = |read: ElementRead<'_>| match read {
            ElementRead::Start => keys.clear(),
            ElementRead::Element(view) => keys.extend(ruleset::stray(&view)),
        };
        self.kernel.read_elements(&table, set.name(), &mut each).expect("the set can be read");
        keys
    }
}

/// Kinds of differences.
const KINDS: [&str; 5] = ["missing", "changed", "orphan", "outdated", "rules"];

/// Plays a test in virtual time.
pub(crate) fn play(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(tokio::task::unconstrained(test));
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a port is not 0")
}

fn endpoints(service: &ObjectName, addresses: impl Iterator<Item = IpAddr>) -> Event {
    let local = Conditions { local: true, ..Conditions::READY };
    let mut endpoints: Vec<_> = addresses.map(Endpoint::ready).collect();
    endpoints.iter_mut().take(1).for_each(|first| first.conditions = local);
    let family = endpoints.first().map_or("none", |it| Family::of(it.address).name());
    let dns = EndpointPort { name: "dns".into(), protocol: Protocol::Udp, port: port(5353) };
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: ObjectName::namespaced("default", &format!("{}-{family}", service.parts().1)),
        service: service.clone(),
        ports: vec![EndpointPort::tcp("http", port(8080)), dns].into(),
        endpoints: endpoints.into_iter().collect(),
        triggered: None,
        weighing: None,
    }))
}

/// A service of its number with so many endpoints, of both families.
pub(crate) fn service(number: u8, count: u8) -> (Service, [Event; 2]) {
    let name = ObjectName::namespaced("default", &format!("service{number}"));
    let v6 = |net, last| IpAddr::from([0xfd00, net, 0, 0, 0, 0, 0, u16::from(last)]);
    let slices = [
        endpoints(&name, (0..count).map(|last| [10, 244, number, last].into())),
        endpoints(&name, (0..count).map(|last| v6(1 + u16::from(number), last))),
    ];
    let ip = IpAddr::from([10, 96, 0, number]);
    let mut service = Service::new(name, vec![ip, v6(0, number)]);
    service.ports = vec![ServicePort::tcp("http", port(80))];
    (service, slices)
}

fn with((service, slices): (Service, [Event; 2])) -> Vec<Event> {
    [Event::Service(Change::Is(service))].into_iter().chain(slices).collect()
}

fn port_ranges() -> Vec<PortRange> {
    PortRange::parse_list("tcp/5000-5003").expect("ranges")
}

/// Services with elements in every set.
pub(crate) fn objects() -> Vec<Event> {
    let node = Node {
        name: ObjectName::cluster_scoped("node"),
        zone: None,
        addresses: vec![[192, 168, 0, 1].into(), "fd00::1".parse().expect("an address")],
        pod_cidrs: Vec::new(),
        leaving: false,
    };
    let (mut open, slices) = service(1, 3);
    open.ports[0].node_port = Some(port(30_080));
    let dns = ServicePort {
        name: "dns".into(),
        protocol: Protocol::Udp,
        port: port(53),
        node_port: Some(port(30_053)),
    };
    open.ports.push(dns);
    open.port_ranges = port_ranges();
    let mut objects = with((open, slices));
    let (mut local, slices) = service(2, 10);
    local.external_traffic_policy = TrafficPolicy::Local;
    local.load_balancer_ips = vec![[192, 0, 2, 1].into(), "fd02::1".parse().expect("an address")];
    let ranges = ["198.51.100.0/24", "203.0.113.0/25", "fd03::/64"];
    local.source_ranges = ranges.map(|range| range.parse().expect("a range")).to_vec();
    local.port_ranges = port_ranges();
    local.ports[0].node_port = Some(port(30_081));
    objects.extend(with((local, slices)));
    let (mut sticky, slices) = service(3, 2);
    sticky.session_affinity = Some(Duration::from_secs(100));
    objects.extend(with((sticky, slices)));
    let (mut empty, slices) = service(4, 0);
    empty.ports[0].node_port = Some(port(30_082));
    empty.port_ranges = port_ranges();
    objects.extend(with((empty, slices)));
    objects.push(Event::Node(Change::Is(node)));
    objects
}

/// The sets that [`objects`] fill.
fn sets() -> impl Iterator<Item = (Family, SetId)> {
    let optional = OptionalSets { port_ranges: true, ..OptionalSets::default() };
    SetId::written(optional).flat_map(|set| Family::ALL.map(|family| (family, set)))
}

fn change(
    operation: fn(nft::TableRef, Arc<nft::Set>, nft::ElementList) -> Operation,
    (family, set): (Family, SetId),
    element: &Element,
) -> Operation {
    let layout = Arc::clone(Layouts::default().of(family).get(set));
    operation(ruleset::table(family), layout, [element.clone()].into())
}

fn add(of: (Family, SetId), element: &Element) -> Operation {
    change(Operation::AddElements, of, element)
}

fn delete(of: (Family, SetId), element: &Element) -> Operation {
    change(Operation::DeleteElements, of, element)
}

fn corrupt<K: Shared>(daemon: &mut Checked<K>, operations: Vec<Operation>) {
    daemon.kernel.corrupt(&Transaction { operations });
}

pub(crate) async fn each_lost_element_is_written_again(kernel: impl Shared) {
    let mut daemon = Checked::start(kernel, objects()).await;
    let expected = contents(&mut daemon.kernel);
    for of in sets() {
        let keys = daemon.keys(of.0, of.1);
        assert!(!keys.is_empty(), "{of:?} is empty");
        for key in keys.iter().take(1) {
            let (before, commits) = (daemon.differences(), daemon.commits());
            let full_syncs = daemon.full_syncs();
            corrupt(&mut daemon, vec![delete(of, key)]);
            daemon.pass(TWO_ROUNDS).await;
            assert_eq!(contents(&mut daemon.kernel), expected, "{of:?} without {key:?}");
            assert_eq!(daemon.differences()[0], before[0] + 1, "{of:?} without {key:?}");
            // Their elements are named by others, so that a lost one is found by reading all.
            if !of.1.is_of_affinity() {
                let writes = (daemon.commits(), daemon.full_syncs());
                assert_eq!(writes, (commits + 1, full_syncs), "{of:?} without {key:?}");
            }
        }
    }
    assert_eq!(daemon.refusals(), 0);
    assert_eq!(daemon.differences()[1..], [0; 4]);
    assert_eq!(daemon.metric("deltaproxy_check_repairs_total"), daemon.differences()[0]);
}

pub(crate) async fn each_changed_element_is_written_again(kernel: impl Shared) {
    let mut daemon = Checked::start(kernel, objects()).await;
    let expected = contents(&mut daemon.kernel);
    let route = Some(Value::new().class_id(0x40));
    let endpoint = Some(Value::new().ip([10, 244, 9, 9].into()).port(9));
    let unserved = Some(Value::new().class_id(0x1_0001));
    let cases = [
        (SetId::Endpoints, endpoint.clone()),
        (SetId::Services, route.clone()),
        (SetId::NodePorts, route.clone()),
        (SetId::InternalServices, route),
        (SetId::UnservedServices, unserved),
        (SetId::AffinityEndpoints, endpoint),
    ];
    for (i, (set, data)) in cases.clone().into_iter().enumerate() {
        let of = (Family::Ip, set);
        let key = daemon.keys(of.0, set)[0].clone();
        let other = Element { data, comment: Some("other".into()), ..key.clone() };
        corrupt(&mut daemon, vec![delete(of, &key), add(of, &other)]);
        daemon.pass(TWO_ROUNDS).await;
        assert_eq!(contents(&mut daemon.kernel), expected, "{set:?}");
        assert_eq!(daemon.differences(), [0, i as u64 + 1, 0, 0, 0], "{set:?}");
    }
    assert_eq!(daemon.refusals(), 0);
    assert_eq!(daemon.metric("deltaproxy_check_repairs_total"), cases.len() as u64);
}

pub(crate) async fn elements_of_nothing_are_deleted(kernel: impl Shared) {
    let mut daemon = Checked::start(kernel, objects()).await;
    let expected = contents(&mut daemon.kernel);
    let address = |last| Element::new(Value::new().ip([10, 96, 7, last].into()));
    let of = (Family::Ip, SetId::ClusterIps);
    // Without the number of elements, the background check finds no orphans.
    if daemon.kernel.count_elements(&ruleset::table(of.0), of.1.name()).expect("a set").is_none() {
        return;
    }
    // The second round finds one more, not as many as before.
    for (last, orphans) in [(1, 1), (2, 2)] {
        corrupt(&mut daemon, vec![add(of, &address(last))]);
        daemon.pass(TWO_ROUNDS * 2).await;
        assert_eq!(contents(&mut daemon.kernel), expected);
        assert_eq!(daemon.differences(), [0, 0, orphans, 0, 0]);
    }
}

pub(crate) async fn rules_that_are_lost_are_written_again(kernel: impl Shared) {
    let mut daemon = Checked::start(kernel, objects()).await;
    let table = ruleset::table(Family::Ip6);
    let rules = |kernel: &mut _| {
        let contents = Kernel::read_table(kernel, &ruleset::table(Family::Ip6));
        contents.expect("it can be read").expect("a table").rules.len()
    };
    let before = rules(&mut daemon.kernel);
    corrupt(&mut daemon, vec![Operation::FlushChain(table, Name::Borrowed("nat-output"))]);
    assert!(rules(&mut daemon.kernel) < before);
    daemon.pass(TWO_ROUNDS).await;
    assert_eq!(rules(&mut daemon.kernel), before);
    assert_eq!(daemon.differences(), [0, 0, 0, 0, 1]);
}

pub(crate) async fn an_emptied_set_is_written_again(kernel: impl Shared) {
    let many = (0..40).flat_map(|number| with(service(number, 6)));
    let mut daemon = Checked::start(kernel, many.collect()).await;
    let expected = contents(&mut daemon.kernel);
    let table = ruleset::table(Family::Ip);
    corrupt(&mut daemon, vec![Operation::FlushSet(table, Name::Borrowed("endpoints"))]);
    daemon.pass(TWO_ROUNDS).await;
    assert_eq!(contents(&mut daemon.kernel), expected);
    assert_eq!(daemon.refusals(), 0);
}

pub(crate) async fn nothing_is_found_beside_continuous_changes(kernel: impl Shared) {
    let mut daemon = Checked::start(kernel, objects()).await;
    let services = daemon.metric("deltaproxy_check_services_total");
    let mut applied: BTreeMap<u8, u8> = BTreeMap::new();
    for i in 0..400_u16 {
        let (number, count) = (10 + (i % 7) as u8, (i * 5 % 13) as u8);
        applied.insert(number, count);
        daemon.send(with(service(number, count)));
        daemon.pass(STEP * 2).await;
    }
    daemon.pass(TWO_ROUNDS).await;
    assert_eq!(daemon.differences(), [0; 5]);
    assert!(daemon.metric("deltaproxy_check_services_total") > services + 40);
    assert_eq!(daemon.refusals(), 0);
}

/// The times that pieces of a round take, with so many services of five endpoints.
pub(crate) async fn times_of_a_round(kernel: impl Shared, services: u32) -> Vec<Duration> {
    let objects = (0..services).flat_map(|number| {
        let name = ObjectName::namespaced("bench", &format!("service-{number}"));
        let address = |net: u32, number: u32| IpAddr::from((net + number).to_be_bytes());
        let mut service = Service::new(name.clone(), vec![address(0x0a60_0000, number)]);
        service.ports = vec![ServicePort::tcp("http", port(80))];
        let addresses = (0..5).map(|i| address(0x0af4_0000, number * 5 + i));
        let Event::EndpointSlice(Change::Is(mut slice)) = endpoints(&name, addresses) else {
            unreachable!("a slice is one")
        };
        slice.name = name;
        [Event::Service(Change::Is(service)), Event::EndpointSlice(Change::Is(slice))]
    });
    let period = Duration::from_secs(600);
    let mut daemon = Checked::start_every(period, kernel, objects.collect()).await;
    daemon.pass(Duration::from_secs(10)).await;
    let mut times = Vec::new();
    let first = daemon.metric("deltaproxy_check_services_total");
    while daemon.metric("deltaproxy_check_services_total") < first + u64::from(services) {
        advance(STEP).await;
        let start = std::time::Instant::now();
        daemon.poll();
        while daemon.requests.run_next(&mut daemon.kernel) {
            daemon.poll();
        }
        times.push(start.elapsed());
    }
    assert_eq!(daemon.differences(), [0; 5]);
    times
}
