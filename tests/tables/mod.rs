//! An engine with the fake kernel, and the meaning of its tables.

#![allow(dead_code, reason = "each test that includes it uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use daemon::read_back::read_direct_return;
use engine::Engine;
use engine::direct::ruleset::{DirectElement, DirectRoute, NodeListId, NodeNumber};
use engine::model::{Event, Protocol, Target};
use engine::routing::Routing;
use engine::ruleset::affinity::{NumberedTimeouts, timeouts_of};
use engine::ruleset::number::{EndpointId, ListId, Route, SizeClass};
use engine::ruleset::{self, Frontend, OptionalSets, SetId, TableElement};
use fake_kernel::Fake;
use nft::kernel::{ElementRead, Kernel};
use nft::{Element, Family, TableFlags};
use proptest::prelude::ProptestConfig;

/// As many cases of each test as `PROPTEST_CASES` says, or so few.
pub(crate) fn config(few: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(few), ..ProptestConfig::default() }
}

pub(crate) fn engine() -> Engine {
    Engine::new(Routing::default(), TableFlags::default())
}

/// An engine whose tables other programs cannot change.
pub(crate) fn owning_engine() -> Engine {
    Engine::new(Routing::default(), TableFlags { owner: true, persist: true })
}

/// As [`settle`], but with a kernel that is only compared with another one: its transactions are
/// not encoded.
pub(crate) fn settle_unencoded(engine: &mut Engine, kernel: &mut Fake) {
    while let Some(transaction) = engine.next_transaction(usize::MAX) {
        kernel.corrupt(&transaction).expect("the kernel accepts every transaction");
        engine.committed(Duration::ZERO);
    }
    assert!(engine.is_settled());
}

/// Commits the differences, in transactions of at most `max_batch` bytes.
pub(crate) fn settle(engine: &mut Engine, kernel: &mut Fake, max_batch: usize) {
    let mut transactions = 0;
    while let Some(transaction) = engine.next_transaction(max_batch) {
        kernel.commit(&transaction).expect("the kernel accepts every transaction");
        engine.committed(Duration::ZERO);
        transactions += 1;
        assert!(transactions < 20_000, "it does not settle: {transaction:?}");
    }
    assert!(engine.is_settled());
}

/// The tables of a daemon that starts now with these events.
pub(crate) fn from_scratch(events: &[Event]) -> BTreeMap<String, String> {
    let (mut engine, mut kernel) = (engine(), Fake::new());
    engine.apply(events.to_vec());
    settle(&mut engine, &mut kernel, usize::MAX);
    contents(&mut kernel)
}

/// The meaning of both tables: lists by their endpoints instead of their numbers, slots in no
/// order. Panics where elements contradict each other or are never used.
pub(crate) fn contents(kernel: &mut impl Kernel) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for family in [Family::Ip, Family::Ip6] {
        let table = Table::read(kernel, family).expect("a table");
        table.check_lists();
        texts.extend(table.texts());
        let contents = kernel.read_table(&ruleset::table(family)).expect("it can be read");
        let flowtables = contents.into_iter().flat_map(|contents| contents.flowtables);
        let devices: BTreeSet<_> =
            flowtables.flat_map(|it| it.devices).map(|it| it.to_string()).collect();
        texts.insert(format!("devices {family:?}"), format!("{devices:?}"));
    }
    texts
}

/// The meaning of table direct-return: lists by their nodes instead of their numbers. Panics where a
/// list is never used. Empty if there is no table.
pub(crate) fn contents_of_direct_return(kernel: &mut impl Kernel) -> BTreeMap<String, String> {
    let elements = read_direct_return(kernel).expect("it can be read").elements;
    let mut lists = BTreeMap::<_, Vec<_>>::new();
    for element in &elements {
        if let DirectElement::Slot(list, slot, node) = element {
            lists.entry(*list).or_default().push((*slot, *node));
        }
    }
    // Slots that follow each other and have one node are written as one.
    let text = |slots: &mut Vec<(u32, NodeNumber)>| {
        slots.sort_unstable();
        let runs = slots.chunk_by(|one, next| one.1 == next.1);
        let runs =
            runs.map(|run| format!("{}..={}: {}", run[0].0, run[run.len() - 1].0, run[0].1.get()));
        runs.collect::<Vec<_>>().join(", ")
    };
    let lists: BTreeMap<_, _> =
        lists.into_iter().map(|(list, mut slots)| (list, text(&mut slots))).collect();
    let mut unused: BTreeSet<_> = lists.keys().copied().collect();
    let mut texts = BTreeMap::new();
    let one = NodeListId::new(1).expect("a number of a list");
    for element in elements {
        let (element, list) = match element {
            DirectElement::Frontend(at, route) => {
                (DirectElement::Frontend(at, DirectRoute { list: one, ..route }), route.list)
            }
            DirectElement::ErrorFrontend(at, route) => {
                (DirectElement::ErrorFrontend(at, DirectRoute { list: one, ..route }), route.list)
            }
            DirectElement::Slot(..) => continue,
            DirectElement::HardwareAddress(_)
            | DirectElement::Address(_)
            | DirectElement::NodeAddress(..)
            | DirectElement::NodeDevice(..) => {
                texts.insert(format!("{element:?}"), String::new());
                continue;
            }
        };
        unused.remove(&list);
        texts.insert(format!("{element:?}"), format!("{:?}", lists.get(&list)));
    }
    assert!(unused.is_empty(), "lists of no service: {unused:?}");
    texts
}

/// The elements of a set.
pub(crate) fn elements(kernel: &Fake, family: Family, set: SetId) -> Vec<Element> {
    kernel.elements(&ruleset::table(family), set.name())
}

/// The elements of a table.
#[derive(Default)]
pub(crate) struct Table {
    timeouts: NumberedTimeouts,
    plain: BTreeMap<ListId, BTreeMap<u32, (Protocol, Target)>>,
    slots: BTreeMap<ListId, BTreeMap<u32, EndpointId>>,
    endpoints: BTreeMap<(ListId, EndpointId), (Protocol, Target)>,
    affinity_lists: BTreeMap<ListId, Route>,
    pub(crate) routes: BTreeMap<Frontend, (Route, Option<String>)>,
    internal: BTreeMap<Frontend, Route>,
    others: BTreeMap<String, String>,
    /// Whether a set that was to be read is missing.
    is_missing: bool,
}

impl Table {
    /// Reads it; `None` if there is none. Rules are read if routes name their timeouts.
    pub(crate) fn read(kernel: &mut impl Kernel, family: Family) -> Option<Self> {
        let all: Vec<_> = SetId::written(OptionalSets::ALL).collect();
        let table = Self::read_sets(kernel, family, &all);
        if table.is_missing {
            return None;
        }
        let mut routes =
            table.routes.values().map(|(route, _)| route).chain(table.internal.values());
        if routes.all(|route| route.timeout().is_none()) {
            return Some(table);
        }
        let rules = kernel.read_table(&ruleset::table(family)).expect("it can be read")?.rules;
        Some(Self { timeouts: timeouts_of(rules.iter()), ..table })
    }

    /// Reads the elements of some of its sets; if there is no table, there are none.
    pub(crate) fn read_sets(kernel: &mut impl Kernel, family: Family, sets: &[SetId]) -> Self {
        let mut table = Self::default();
        for set in sets.iter().copied() {
            let mut each = |read: ElementRead<'_>| {
                if let ElementRead::Element(view) = read {
                    match TableElement::read(family, set, &view) {
                        Some(element) => table.add(&element),
                        None => {
                            let stray = format!("stray in {}: {:?}", set.name(), view.key);
                            table.others.insert(stray, String::new());
                        }
                    }
                }
            };
            match kernel.read_elements(&ruleset::table(family), set.name(), &mut each) {
                Err(error) if error.is_missing() => {
                    table.is_missing |= SetId::written(OptionalSets::default()).any(|it| it == set);
                }
                read => read.expect("it can be read"),
            }
        }
        table
    }

    fn add(&mut self, element: &TableElement<'_>) {
        match element {
            TableElement::Endpoint(list, protocol, slot, target) => {
                self.plain.entry(*list).or_default().insert(*slot, (*protocol, *target));
            }
            TableElement::AffinitySlot(list, slot, id) => {
                self.slots.entry(*list).or_default().insert(*slot, *id);
            }
            TableElement::AffinityEndpoint(list, protocol, id, target) => {
                self.endpoints.insert((*list, *id), (*protocol, *target));
            }
            TableElement::RangeEndpoint(list, id, address) => {
                // Those of all protocols are the same.
                let target = Target::of_ranges(*address);
                self.endpoints.insert((*list, *id), (Protocol::Tcp, target));
            }
            TableElement::AffinityList(list, route) => {
                self.affinity_lists.insert(*list, *route);
            }
            TableElement::Route(frontend, route, label) => {
                self.routes.insert(*frontend, (*route, label.map(str::to_owned)));
            }
            TableElement::Internal(frontend, route) => {
                self.internal.insert(*frontend, *route);
            }
            TableElement::Unserved(frontend, ..) => {
                self.others.insert(format!("no endpoint: {frontend:?}"), text(element));
            }
            TableElement::Member(_)
            | TableElement::Restricted(_)
            | TableElement::SourceRange(..)
            | TableElement::PortBlock(..)
            | TableElement::SourceRefusals(_) => {
                self.others.insert(text(element), String::new());
            }
            TableElement::Ended(target, ..) => {
                self.others.insert(format!("ended: {target:?}"), String::new());
            }
        }
    }

    /// The endpoints by slot of a list, if it has any.
    pub(crate) fn slots_of(&self, list: ListId) -> Option<BTreeMap<u32, (Protocol, Target)>> {
        if !list.has_affinity() {
            return self.plain.get(&list).cloned();
        }
        let endpoint =
            |(slot, id): (&u32, &EndpointId)| Some((*slot, *self.endpoints.get(&(list, *id))?));
        self.slots.get(&list)?.iter().map(endpoint).collect()
    }

    /// The endpoints in the slots of a list, without a gap. Those of a table are in their order,
    /// others are sorted.
    fn endpoints_of(&self, list: ListId, size: SizeClass) -> Vec<(Protocol, Target)> {
        let slots = self.slots_of(list).expect("a list that a route names");
        assert!(slots.keys().copied().eq(0..u32::try_from(slots.len()).unwrap()), "{slots:?}");
        let mut endpoints: Vec<_> = slots.into_values().collect();
        match size.table() {
            Some((_, size)) => assert_eq!(endpoints.len(), size.slots() as usize),
            None => {
                assert_eq!(size, SizeClass::of(endpoints.len()), "{endpoints:?}");
                endpoints.sort_by_key(|(protocol, target)| (*protocol, *target));
            }
        }
        endpoints
    }

    /// Every list and every endpoint of one is of use.
    fn check_lists(&self) {
        let routes = self.routes.values().map(|(route, _)| route).chain(self.internal.values());
        let named: BTreeSet<_> = routes.filter_map(|route| route.list()).collect();
        let lists: BTreeSet<_> = self.plain.keys().chain(self.slots.keys()).copied().collect();
        assert_eq!(named, lists, "lists that routes name and lists with slots");
        let sessions: BTreeSet<_> = self.slots.keys().copied().collect();
        assert_eq!(sessions, self.affinity_lists.keys().copied().collect());
        let used: BTreeSet<_> = self
            .slots
            .iter()
            .flat_map(|(list, slots)| slots.values().map(|id| (*list, *id)))
            .collect();
        assert_eq!(used, self.endpoints.keys().copied().collect());
    }

    fn texts(self) -> BTreeMap<String, String> {
        let routes = self.routes.iter().map(|(frontend, (route, label))| {
            (format!("route of {frontend:?}"), *route, label.clone())
        });
        let internal = self.internal.iter();
        let internal = internal
            .map(|(frontend, route)| (format!("internal route of {frontend:?}"), *route, None));
        let routes = routes.chain(internal).map(|(name, route, label)| {
            let list = route.list().map(|list| self.endpoints_of(list, route.size()));
            let endpoints = list.unwrap_or_default();
            let timeout = route.timeout().map(|timeout| self.timeouts[&timeout]);
            if let Some(list) = route.list().filter(|list| list.has_affinity()) {
                let again = self.affinity_lists[&list];
                assert_eq!((again.size(), again.timeout()), (route.size(), route.timeout()));
            }
            let flags = route.flags();
            (name, format!("{endpoints:?} {flags:?} {timeout:?} s {label:?}"))
        });
        routes.chain(self.others.clone()).collect()
    }
}

fn text(value: &impl Debug) -> String {
    format!("{value:?}")
}
