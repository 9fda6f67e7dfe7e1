//! What must hold after every commit, whatever else went wrong.

use std::collections::{BTreeMap, BTreeSet};

use engine::desired;
use engine::desired::{SlotBudget, Traffic};
use engine::flow::StaleFlow;
use engine::model::{Cluster, ObjectName, Protocol, Target, Touched};
use engine::routing::Routing;
use engine::ruleset::{self, Frontend, SetId, TableElement};
use nft::kernel::{CommitError, Committed, ElementRead, Kernel};
use nft::{ElementView, Family, Operation, Transaction};

use super::objects::{Objects, are_of_bystander};
use crate::tables::Table;

/// A UDP flow: where it was sent, and which endpoint answers.
type Flow = (Target, Target);

/// Set, key and data of an element.
type Bytes = (&'static str, Vec<u8>, Vec<u8>);

#[derive(Default)]
pub(crate) struct Oracle {
    /// What was wrong.
    pub(crate) violations: Vec<String>,
    /// Frontends that had usable endpoints all the time since the last check.
    must_work: BTreeSet<Frontend>,
    /// Routes and lists of each table, as far as read since its last change.
    tables: [Option<Table>; 2],
    /// Elements of the bystanders in each table at the last check.
    bystanders: Option<[BTreeSet<Bytes>; 2]>,
    /// Whether another program has changed our tables since the last check.
    pub(crate) is_damaged: bool,
    /// Flows through all that was ever installed, without those that were to be deleted.
    flows: BTreeSet<Flow>,
    /// Frontends that an object has or had. A daemon cannot know those that another program added
    /// and deleted again with the table.
    known: BTreeSet<Target>,
    /// Whether the daemon was killed since the last check: it cannot know of every frontend that ended
    /// just before.
    has_restarted: bool,
}

impl Oracle {
    /// Looks at the tables after a transaction.
    pub(crate) fn see(
        &mut self,
        transaction: &Transaction,
        outcome: &Result<Committed, CommitError>,
        kernel: &mut impl Kernel,
    ) {
        match outcome {
            Err(error) if !self.is_damaged => {
                self.violations.push(format!("refused: {error} in {transaction:?}"));
            }
            Err(_) => {}
            Ok(_) => {
                let changed = transaction.operations.iter().filter_map(Operation::family);
                changed.for_each(|family| self.tables[family.index()] = None);
                self.look(kernel);
                self.check_ended(transaction, kernel);
            }
        }
    }

    /// No new slot leads to an endpoint whose connections end.
    fn check_ended(&mut self, transaction: &Transaction, kernel: &mut impl Kernel) {
        for operation in transaction.operations.iter().filter(|_| !self.is_damaged) {
            let Operation::AddElements(table, set, elements) = operation else { continue };
            let Some((family, set)) = table.family.of_addresses().zip(SetId::by_name(&set.name))
            else {
                continue;
            };
            let ended = ended(kernel, family);
            let reads = elements.iter().filter_map(|element| {
                let (key, data) = (element.key.as_bytes(), element.data.as_ref()?.as_bytes());
                let view = ElementView { key, data: Some(data), ..ElementView::default() };
                TableElement::read(family, set, &view)
            });
            for element in reads {
                let (TableElement::Endpoint(_, Protocol::Tcp, _, target)
                | TableElement::AffinityEndpoint(_, Protocol::Tcp, _, target)) = element
                else {
                    continue;
                };
                if ended.contains(&target) {
                    self.violations.push(format!("a new slot leads to ended {target:?}"));
                }
            }
        }
    }

    /// Another program has changed our tables: only a check tells more.
    pub(crate) fn forget(&mut self) {
        self.is_damaged = true;
        self.tables = [None, None];
        self.forget_routes();
    }

    /// Records the frontends of the present objects.
    pub(crate) fn know<'a>(&mut self, frontends: impl Iterator<Item = &'a Target>) {
        self.known.extend(frontends);
    }

    /// The daemon is killed: flows to frontends that ended just before may stay, also when others
    /// get the address.
    pub(crate) fn forget_ended(&mut self, serving: &BTreeMap<Target, BTreeSet<Target>>) {
        self.flows.retain(|(frontend, _)| serving.contains_key(frontend));
        self.has_restarted = true;
        self.tables = [None, None];
    }

    /// Another configuration is in force.
    pub(crate) fn forget_routes(&mut self) {
        self.must_work.clear();
        self.bystanders = None;
    }

    /// Frontends that are not wanted, or without endpoints, need not work any more.
    pub(crate) fn keep(&mut self, served: &BTreeSet<Frontend>) {
        self.must_work.retain(|frontend| served.contains(frontend));
    }

    /// From now on, frontends that are served and installed must go on working, and elements of
    /// bystanders stay what they are.
    pub(crate) fn begin(&mut self, served: &BTreeSet<Frontend>, kernel: &mut impl Kernel) {
        self.tables = [None, None];
        self.read(kernel);
        let routes = self.tables.iter().flatten().flat_map(|table| table.routes.keys());
        self.must_work = routes.copied().filter(|it| served.contains(it)).collect();
        self.bystanders = Some(Family::ALL.map(|family| elements_of_bystanders(kernel, family)));
        self.is_damaged = false;
    }

    fn look(&mut self, kernel: &mut impl Kernel) {
        let changed: Vec<_> = Family::ALL
            .into_iter()
            .filter(|family| self.tables[family.index()].is_none())
            .collect();
        self.read(kernel);
        for frontend in &self.must_work {
            if let Some(fault) = fault(&self.tables, frontend) {
                self.violations.push(format!("{frontend:?} does not work: {fault}"));
            }
        }
        for family in changed {
            let Some(known) = &self.bystanders else { break };
            let (known, found) = (&known[family.index()], elements_of_bystanders(kernel, family));
            if found != *known {
                let (gone, new) = (known.difference(&found), found.difference(known));
                let (gone, new) = (gone.collect::<Vec<_>>(), new.collect::<Vec<_>>());
                self.violations.push(format!("a bystander was touched: -{gone:?} +{new:?}"));
            }
        }
        self.flows.extend(self.tables.iter().flatten().flat_map(flows));
    }

    /// Reads the tables that may have changed.
    fn read(&mut self, kernel: &mut impl Kernel) {
        for (table, family) in self.tables.iter_mut().zip(Family::ALL) {
            table.get_or_insert_with(|| read(kernel, family));
        }
    }

    /// Removes the flows that the daemon deletes.
    pub(crate) fn delete(&mut self, deleted: &[StaleFlow]) {
        if deleted.is_empty() {
            return;
        }
        let deleted: BTreeSet<_> = deleted.iter().map(ToString::to_string).collect();
        self.flows.retain(|(frontend, endpoint)| {
            let (frontend, endpoint) = (*frontend, *endpoint);
            let meaning = [
                StaleFlow::to(frontend),
                StaleFlow::between(frontend, endpoint),
                StaleFlow::through_port(frontend.port, endpoint),
            ];
            !meaning.iter().any(|flow| deleted.contains(&flow.to_string()))
        });
    }

    /// All flows.
    pub(crate) fn flows(&self) -> Vec<engine::flow::Flow> {
        let flow = |&(sent_to, answered_by): &Flow| engine::flow::Flow {
            protocol: Protocol::Udp,
            sent_to,
            answered_by,
        };
        self.flows.iter().map(flow).collect()
    }

    /// The flows that the tables let begin.
    pub(crate) fn flows_of_tables(kernel: &mut impl Kernel) -> Vec<engine::flow::Flow> {
        let flow = |(sent_to, answered_by): Flow| engine::flow::Flow {
            protocol: Protocol::Udp,
            sent_to,
            answered_by,
        };
        let tables = Family::ALL.map(|family| read(kernel, family));
        tables.iter().flat_map(flows).map(flow).collect()
    }

    /// Every flow that is left leads to an endpoint that serves its frontend.
    pub(crate) fn check_flows(&mut self, serving: &BTreeMap<Target, BTreeSet<Target>>) {
        let has_restarted = std::mem::take(&mut self.has_restarted);
        self.known.extend(serving.keys());
        let served = |(frontend, endpoint): &Flow| {
            serving.get(frontend).is_some_and(|targets| targets.contains(endpoint))
        };
        let flows = std::mem::take(&mut self.flows);
        let (served, stale): (BTreeSet<Flow>, BTreeSet<Flow>) = flows.into_iter().partition(served);
        self.flows = served;
        let may_stay = |(frontend, _): &Flow| {
            !self.known.contains(frontend) || has_restarted && !serving.contains_key(frontend)
        };
        let stale = stale.into_iter().filter(|flow| !may_stay(flow));
        let text = |(frontend, endpoint)| format!("a flow stays: {frontend:?} to {endpoint:?}");
        self.violations.extend(stale.map(text));
    }
}

/// The endpoints whose connections end; none in a table without their set.
fn ended(kernel: &mut impl Kernel, family: Family) -> BTreeSet<Target> {
    let (mut ended, set) = (BTreeSet::new(), SetId::EndedEndpoints);
    let each = &mut |read: ElementRead<'_>| {
        if let ElementRead::Element(view) = read
            && let Some(TableElement::Ended(target, ..)) = TableElement::read(family, set, &view)
        {
            ended.insert(target);
        }
    };
    let _ = kernel.read_elements(&ruleset::table(family), set.name(), each);
    ended
}

fn read(kernel: &mut impl Kernel, family: Family) -> Table {
    Table::read_sets(kernel, family, &SETS)
}

/// The sets through which packets reach an endpoint.
const SETS: [SetId; 5] = [
    SetId::Endpoints,
    SetId::Services,
    SetId::NodePorts,
    SetId::AffinitySlots,
    SetId::AffinityEndpoints,
];

/// Why a frontend that should work does not.
fn fault(tables: &[Option<Table>], frontend: &Frontend) -> Option<String> {
    let table = tables.iter().flatten().find(|table| table.routes.contains_key(frontend));
    let Some((table, (route, _))) = table.map(|table| (table, &table.routes[frontend])) else {
        return Some("it has no route".to_owned());
    };
    let list = route.list()?;
    let Some(slots) = table.slots_of(list) else {
        return Some(format!("list {list} has no slots, or a slot without endpoint"));
    };
    let is_whole = slots.keys().copied().eq(0..u32::try_from(slots.len()).unwrap_or_default());
    let fewest = match route.size().table() {
        Some((_, size)) => size.slots(),
        None => route.size().fewest(),
    };
    if !is_whole || slots.len() < fewest as usize {
        return Some(format!("{route:?} leads to {slots:?}"));
    }
    None
}

/// The flows that a table lets begin at an address.
fn flows(table: &Table) -> Vec<Flow> {
    let mut flows = Vec::new();
    for (frontend, (route, _)) in &table.routes {
        let Frontend::Address { address, protocol: Protocol::Udp, port } = *frontend else {
            continue;
        };
        let slots = route.list().and_then(|list| table.slots_of(list)).unwrap_or_default();
        let endpoints = slots.into_values().map(|(_, endpoint)| endpoint);
        flows.extend(endpoints.map(|endpoint| (Target { address, port }, endpoint)));
    }
    flows
}

fn elements_of_bystanders(kernel: &mut impl Kernel, family: Family) -> BTreeSet<Bytes> {
    let mut found = BTreeSet::new();
    for set in SetId::ALL {
        let each = &mut |read: ElementRead<'_>| {
            let ElementRead::Element(view) = read else { return };
            let data = view.data.unwrap_or_default();
            if are_of_bystander(view.key) || are_of_bystander(data) {
                found.insert((set.name(), view.key.to_vec(), data.to_vec()));
            }
        };
        // There may be no table yet.
        let _ = kernel.read_elements(&ruleset::table(family), set.name(), each);
    }
    found
}

/// What services need of the tables, as far as the checks go.
pub(crate) struct Wanted {
    /// Frontends that have endpoints, whichever of several claimants gets them.
    pub(crate) served: BTreeSet<Frontend>,
    /// Endpoints that UDP flows to an address may go to.
    pub(crate) serving: BTreeMap<Target, BTreeSet<Target>>,
}

impl Wanted {
    /// Those of all services but `excluded`, whose frontends need not work.
    pub(crate) fn by(
        objects: &Objects,
        routing: &Routing,
        excluded: impl Fn(&ObjectName) -> bool,
    ) -> Self {
        let mut cluster = Cluster::default();
        for mut event in objects.all().cloned() {
            routing.adapt(&mut event);
            cluster.apply(event, &mut Touched::default());
        }
        let (mut served, mut unserved) = (BTreeSet::new(), BTreeSet::new());
        let mut serving = BTreeMap::<_, BTreeSet<_>>::new();
        // Slots do not matter here.
        let slots = SlotBudget::default();
        for service in objects.services() {
            let view = cluster.service(&service.name).expect("it was applied");
            for port in desired::render(&view, None, slots.of(&service.name)).ports {
                for wanted in &port.frontends {
                    let works = match wanted.traffic {
                        Traffic::To { .. } | Traffic::ChosenNode => true,
                        Traffic::ExternalLocal => !port.endpoints(desired::Scope::Local).is_empty(),
                        Traffic::Unserved(_) => false,
                    };
                    let is_served = works && !excluded(&service.name);
                    let of = if is_served { &mut served } else { &mut unserved };
                    of.insert(wanted.frontend);
                    if let (Frontend::Address { address, port: number, .. }, Some(targets)) =
                        (wanted.frontend, &port.serving)
                    {
                        let frontend = Target { address, port: number };
                        serving.entry(frontend).or_default().extend(targets.iter().copied());
                    }
                }
            }
        }
        served.retain(|frontend| !unserved.contains(frontend));
        Self { served, serving }
    }
}
