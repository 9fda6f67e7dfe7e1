//! Reads [`Services`] from the kernel.
//!
//! What the elements mean is decided by [`FoundElements`], as at a read-back of the daemon. The
//! labels and the counters, which the daemon does not keep, are collected beside it.

use ahash::{HashMap, HashSet};
use engine::diff::{FoundElements, FrontendState};
use engine::direct::ruleset::Destination;
use engine::model::Target;
use engine::ruleset::affinity::timeouts_of;
use engine::ruleset::base::serves_node_ports_everywhere;
use engine::ruleset::number::{ListId, Route};
use engine::ruleset::{Frontend, Member, SetId, TableElement};
use nft::kernel::ReadError;
use nft::{Counter, Family};

use super::refused::RefusedByFrontend;
use super::services::{EndpointList, Entry, Services};
use crate::refusals::refused_packets;
use crate::tables::{OurTable, TableReader, TablesError};

/// Most reads of the tables if they change meanwhile. Then the last read is shown, because on a
/// busy node the tables may never stop changing.
const ATTEMPTS: usize = 2;

/// Sets that are not dumped. Cluster IPs are read only where routes do not distinguish them from
/// other addresses, and endpoints by their keys.
const NOT_DUMPED: [SetId; 4] =
    [SetId::ClusterIps, SetId::Endpoints, SetId::AffinityLists, SetId::AffinityClients];

/// Reads the services of the existing tables, and returns these tables too.
///
/// # Errors
/// See [`TablesError`].
pub fn read(reader: &mut TableReader) -> Result<(Services, Vec<OurTable>), TablesError> {
    let mut attempt = 1;
    loop {
        let generation = reader.generation()?;
        let tables = reader.tables()?;
        let mut reading = Reading::default();
        for table in &tables {
            reading.read_table(reader, table)?;
        }
        reading.read_direct(reader)?;
        let mut services = reading.services;
        services.refused = refused_packets(&tables);
        services.finish(reading.entries);
        services.is_torn = reading.is_torn || reader.generation()? != generation;
        if !services.is_torn || attempt == ATTEMPTS {
            return Ok((services, tables));
        }
        attempt += 1;
    }
}

/// Partial result of a read.
#[derive(Default)]
struct Reading {
    services: Services,
    entries: Vec<Entry>,
    is_torn: bool,
}

/// One table, while it is read.
struct TableReading {
    found: FoundElements,
    comments: HashMap<Frontend, Box<str>>,
    counted: HashMap<Frontend, Counter>,
    counted_endpoints: HashMap<(ListId, Target), Counter>,
    refused: RefusedByFrontend,
    is_torn: bool,
}

impl Reading {
    fn read_table(&mut self, reader: &mut TableReader, table: &OurTable) -> Result<(), ReadError> {
        let read = TableReading::read(reader, table)?;
        self.is_torn |= read.is_torn;
        self.entries.extend(read.entries());
        let (family, services) = (table.family, &mut self.services);
        services.lists[family.index()] = read.lists();
        services.timeouts[family.index()] = timeouts_of(table.contents.rules.iter());
        if !serves_node_ports_everywhere(&table.contents.rules) {
            services.restrict_node_ports(family);
        }
        for member in read.found.members() {
            match *member {
                Member::NodePortIp(address) => services.add_node_port_ip(address),
                Member::Hairpin(target, protocol) => services.add_local(target, protocol),
                Member::RangeHairpin(address) => services.add_local_address(address),
                Member::ClusterIp(_) => {}
            }
        }
        Ok(())
    }

    /// Marks the frontends whose packets nodes hand to each other.
    fn read_direct(&mut self, reader: &mut TableReader) -> Result<(), ReadError> {
        let (direct, is_whole) = reader.direct_destinations()?;
        self.is_torn |= !is_whole;
        if direct.is_empty() {
            return Ok(());
        }
        let frontends: HashSet<_> = self.entries.iter().map(|entry| entry.frontend).collect();
        // A destination that no service has as its address is a node port.
        let frontend = |it: Destination| {
            if frontends.contains(&it.frontend()) { it.frontend() } else { it.node_port() }
        };
        let direct: HashSet<_> = direct.into_iter().map(frontend).collect();
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_cluster_ip) {
            entry.is_direct = direct.contains(&entry.frontend);
        }
        Ok(())
    }
}

impl TableReading {
    fn read(reader: &mut TableReader, table: &OurTable) -> Result<Self, ReadError> {
        let mut read = Self {
            found: FoundElements::new(table.family),
            comments: HashMap::default(),
            counted: HashMap::default(),
            counted_endpoints: HashMap::default(),
            refused: RefusedByFrontend::default(),
            is_torn: false,
        };
        let sets = reader.sets(table).into_iter();
        for (set, _) in sets.filter(|(set, count)| !NOT_DUMPED.contains(set) && *count != Some(0)) {
            read.dump(reader, table.family, set)?;
        }
        // Frontends without a route have no flags that show whether they are cluster IPs.
        if read.found.frontends().any(|(_, state)| state.route().is_none()) {
            read.dump(reader, table.family, SetId::ClusterIps)?;
        }
        read.find_endpoints(reader, table.family)?;
        read.found.finish();
        Ok(read)
    }

    fn dump(
        &mut self,
        reader: &mut TableReader,
        family: Family,
        set: SetId,
    ) -> Result<(), ReadError> {
        let mut each = |element: TableElement<'_>, counted| self.add(&element, counted);
        let is_whole = reader.elements(family, set, &mut each)?;
        self.is_torn |= !is_whole;
        Ok(())
    }

    fn add(&mut self, element: &TableElement<'_>, counted: Option<Counter>) {
        self.found.add(element);
        self.refused.add(element, counted);
        if let TableElement::Route(frontend, _, label)
        | TableElement::Unserved(frontend, _, label) = *element
        {
            self.comments.insert(frontend, label.unwrap_or_default().into());
        }
        if let (TableElement::Route(frontend, ..), Some(counted)) = (element, counted) {
            self.counted.insert(*frontend, counted);
        }
        if let Some((list, _, _, target)) = element.session() {
            self.add_counter(list, target, counted);
        }
    }

    fn add_counter(&mut self, list: ListId, target: Target, counted: Option<Counter>) {
        if let Some(counted) = counted {
            *self.counted_endpoints.entry((list, target)).or_default() += counted;
        }
    }

    fn find_endpoints(
        &mut self,
        reader: &mut TableReader,
        family: Family,
    ) -> Result<(), ReadError> {
        let lists = self.found.plain_lists().into_values();
        let mut each = |(list, protocol, slot), target, counted| {
            self.found.put(list, protocol, slot, target);
            self.add_counter(list, target, counted);
        };
        reader.endpoints(family, lists, &mut each)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.found.frontends().map(|(frontend, state)| {
            let mut entry = Entry {
                route: state.route(),
                internal: state.internal(),
                unserved: state.unserved(),
                blocks: state.blocks().to_vec(),
                source_ranges: state.source_ranges().map(<[_]>::to_vec),
                is_cluster_ip: self.is_cluster_ip(frontend, state),
                counted: self.counted.get(&frontend).copied(),
                refused: self.refused.of(&frontend).to_vec(),
                ..Entry::new(frontend)
            };
            entry.set_label(self.comments.get(&frontend).map_or("", |comment| comment));
            entry
        })
    }

    fn is_cluster_ip(&self, frontend: Frontend, state: &FrontendState) -> bool {
        let (Frontend::Address { address, .. } | Frontend::Ranges { address, .. }) = frontend
        else {
            return false;
        };
        match state.route() {
            Some(route) => is_to_cluster_ip(route),
            None => self.found.members().binary_search(&Member::ClusterIp(address)).is_ok(),
        }
    }

    fn lists(&self) -> HashMap<ListId, EndpointList> {
        let lists = self.found.lists().map(|(id, slots)| {
            let mut list = EndpointList::of_slots(slots);
            let targets = list.targets.iter();
            list.ids =
                targets.clone().filter_map(|it| self.found.affinity_number(id, it)).collect();
            let counters = targets.filter_map(|it| self.counted_endpoints.get(&(id, *it)));
            list.counted = counters.copied().collect();
            (id, list)
        });
        lists.collect()
    }
}

/// Returns true for a cluster IP: external addresses are masqueraded, or their policy is `Local`.
fn is_to_cluster_ip(route: Route) -> bool {
    let flags = route.flags();
    !flags.masquerade && !flags.local
}
