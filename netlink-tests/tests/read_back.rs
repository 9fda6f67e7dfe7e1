//! Reading by keys equals a dump, and a dump is made if the keys are incomplete.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use daemon::converge::commit_all;
use daemon::read_back::read_back;
use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Protocol, Resource, Service,
    ServicePort,
};
use engine::routing::Routing;
use engine::ruleset::number::ListId;
use engine::ruleset::{SetId, TableElement, slot_key};
use engine::{Engine, FoundTable};
use fake_kernel::Fake;
use netlink_tests::Namespace;
use nft::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, Nftables, OthersChanges, ReadError,
    Release,
};
use nft::{
    Element, ElementList, ElementView, Family, Operation, TableFlags, TableRef, Transaction, Value,
};

/// Services have 1, 2, 3 … endpoints: all numbers that have a separate chain, and more.
const SERVICES: u32 = 40;

/// The first kernel on which this was seen.
const TELLS_COUNTS: Release = Release { major: 6, minor: 18 };

/// A kernel that notes which sets are dumped.
struct Noting<K> {
    kernel: K,
    tells_counts: bool,
    dumped: Vec<String>,
}

impl<K: Kernel> Kernel for Noting<K> {
    fn max_batch(&self) -> usize {
        self.kernel.max_batch()
    }

    fn port(&self) -> u32 {
        self.kernel.port()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        self.kernel.commit(transaction)
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.kernel.watch_others(tables)
    }

    fn ignore_others(&mut self) {
        self.kernel.ignore_others();
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.kernel.others_changes()
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        let mut contents = self.kernel.read_table(table)?;
        if !self.tells_counts {
            let sets = contents.iter_mut().flat_map(|contents| &mut contents.sets);
            sets.for_each(|set| set.elements = None);
        }
        Ok(contents)
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        self.dumped.push(format!("{} {set}", table.family));
        self.kernel.read_elements(table, set, each)
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.kernel.find_elements(table, set, keys, each)
    }
}

impl<K: Kernel> Noting<K> {
    /// A kernel with [`SERVICES`].
    fn new(kernel: K) -> Self {
        let mut noting = Self { kernel, tells_counts: true, dumped: Vec::new() };
        let mut engine = Engine::new(Routing::default(), TableFlags::default());
        engine.apply((0..SERVICES).map(service));
        engine.apply((0..SERVICES).flat_map(slices));
        engine.apply(Resource::ALL.map(Event::Listed));
        let found = read_back(&mut noting, engine.tables().layouts()).unwrap();
        engine.replace_installed_state(found);
        assert!(matches!(commit_all(&mut engine, &mut noting, &mut |_, _| ()), Ok(None)));
        noting
    }

    /// The contents, and whether the endpoints of both families were dumped for them.
    fn read(&mut self) -> ([FoundTable; 2], [bool; 2]) {
        self.dumped.clear();
        let engine = Engine::new(Routing::default(), TableFlags::default());
        let found = read_back(self, engine.tables().layouts()).unwrap();
        (
            found.of_services,
            ["ip endpoints", "ip6 endpoints"]
                .map(|name| self.dumped.iter().any(|dumped| dumped == name)),
        )
    }

    /// Checks that the contents equal those of dumps.
    #[track_caller]
    fn check(&mut self, expected_dumps: [bool; 2]) {
        let (found, dumped) = self.read();
        self.tells_counts = false;
        let (expected, _) = self.read();
        self.tells_counts = true;
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.elements.frontends().count() > SERVICES as usize);
            assert_eq!(found.elements, expected.elements);
            assert_eq!(found.cleanup, expected.cleanup);
        }
        // If the kernel does not report counts, everything is dumped.
        let sets = self.read_table(&table(Family::Ip)).unwrap().unwrap().sets;
        let tells_counts = sets.iter().any(|set| set.elements.is_some());
        assert!(tells_counts || Release::running() < Some(TELLS_COUNTS));
        let expected = expected_dumps.map(|is_dumped| is_dumped || !tells_counts);
        assert_eq!(dumped, expected);
    }

    fn change(&mut self, change: impl Fn(TableRef, ElementList) -> Operation, element: Element) {
        let operations = vec![change(table(Family::Ip), vec![element].into())];
        self.commit(&Transaction { operations }).unwrap();
    }
}

/// Runs a test on the fake kernel and on the real one.
macro_rules! on_both {
    ($test:expr) => {
        $test(&mut Noting::new(Fake::new()));
        Namespace::new().run(|| $test(&mut Noting::new(Nftables::open().unwrap())));
    };
}

#[test]
fn endpoints_of_any_number_are_read_by_their_keys() {
    fn test(kernel: &mut Noting<impl Kernel>) {
        kernel.check([false, false]);
    }
    on_both!(test);
}

#[test]
fn an_endpoint_of_no_service_is_found_by_a_dump() {
    fn test(kernel: &mut Noting<impl Kernel>) {
        let set = endpoints(kernel);
        let stray = Element::with_value(slot_key(NO_LIST, Protocol::Tcp, 0), data());
        kernel.change(|table, list| Operation::AddElements(table, set.clone(), list), stray);
        kernel.check([true, false]);
    }
    on_both!(test);
}

#[test]
fn a_missing_endpoint_is_found_by_a_dump() {
    fn test(kernel: &mut Noting<impl Kernel>) {
        let set = endpoints(kernel);
        let gone = Element::new(slot_of(kernel, 4, 2));
        kernel.change(|table, list| Operation::DeleteElements(table, set.clone(), list), gone);
        kernel.check([true, false]);
    }
    on_both!(test);
}

#[test]
fn an_endpoint_without_address_is_found_by_a_dump_and_will_be_deleted() {
    fn test(kernel: &mut Noting<impl Kernel>) {
        let set = endpoints(kernel);
        let slot = slot_of(kernel, 4, 2);
        let gone = Element::new(slot.clone());
        kernel.change(|table, list| Operation::DeleteElements(table, set.clone(), list), gone);
        let nowhere = Element::with_value(slot, Value::new().ip(POD.into()).port(0));
        kernel.change(|table, list| Operation::AddElements(table, set.clone(), list), nowhere);
        kernel.check([true, false]);
        assert_eq!(kernel.read().0[0].cleanup.len(), 1);
    }
    on_both!(test);
}

/// No route names it.
const NO_LIST: ListId = ListId::plain(0x7f_ffff);

const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 5);

fn table(family: Family) -> TableRef {
    TableRef::new(family, "kube-proxy")
}

fn endpoints(kernel: &mut impl Kernel) -> std::sync::Arc<nft::Set> {
    let contents = kernel.read_table(&table(Family::Ip)).unwrap().unwrap();
    let found = contents.sets.into_iter().find(|set| set.name == "endpoints").unwrap();
    std::sync::Arc::new(found.set.unwrap())
}

/// The key of a slot of the list that a service's route names.
fn slot_of(kernel: &mut impl Kernel, service: u32, slot: u32) -> Value {
    let key = Value::new().ip(cluster_ips(service)[0]).proto(6).port(80);
    let mut list = None;
    let mut each = |view: ElementView<'_>| {
        let found = TableElement::read(Family::Ip, SetId::Services, &view);
        let Some(TableElement::Route(_, route, _)) = found else { panic!("{view:?}") };
        list = route.list();
    };
    kernel.find_elements(&table(Family::Ip), "services", &[key], &mut each).unwrap();
    slot_key(list.unwrap(), Protocol::Tcp, slot)
}

fn data() -> Value {
    Value::new().ip(POD.into()).port(8080)
}

fn cluster_ips(number: u32) -> [IpAddr; 2] {
    let v6 = u128::from(number) + (0xfd00 << 112);
    [Ipv4Addr::from(0x0a60_0000 + number).into(), Ipv6Addr::from(v6).into()]
}

fn name(number: u32) -> ObjectName {
    ObjectName::namespaced("default", &format!("service-{number}"))
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn service(number: u32) -> Event {
    let node_port = number.is_multiple_of(2).then(|| port(30_000 + u16::try_from(number).unwrap()));
    Event::Service(Change::Is(Service {
        ports: vec![ServicePort { node_port, ..ServicePort::tcp("http", port(80)) }],
        ..Service::new(name(number), cluster_ips(number).into())
    }))
}

/// A slice for each family.
fn slices(number: u32) -> [Event; 2] {
    let address = |i| cluster_ips(0x0094_0000 + number * 256 + i);
    [0, 1].map(|family| {
        let endpoints = (0..number).map(|i| Endpoint::ready(address(i)[family]));
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: ObjectName::namespaced("default", &format!("slice-{number}-{family}")),
            service: name(number),
            ports: [EndpointPort::tcp("http", port(8080))].into(),
            endpoints: endpoints.collect(),
            triggered: None,
            weighing: None,
        }))
    })
}
