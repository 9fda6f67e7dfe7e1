//! Reads [`Services`] from the kernel.

use std::net::IpAddr;

use ahash::{HashMap, HashSet};
use engine::ruleset::affinity::timeouts_of;
use engine::ruleset::base::serves_node_ports_everywhere;
use engine::ruleset::number::{EndpointId, ListId, Route};
use engine::ruleset::{Frontend, Member, NamedList, SetId, SlotKeys, TableElement, target};
use nft::family::Family;
use nft::kernel::ReadError;
use nft::{Counter, ElementView};

use super::services::{Entry, List, Services};
use crate::tables::{OurTable, TableReader, TablesError};

/// Most reads of the tables if they change meanwhile. Then the last read is shown, because on a
/// busy node the tables may never stop changing.
const ATTEMPTS: usize = 2;

/// Sets that are dumped: their size grows with the frontends. Cluster IPs are not among them:
/// routes distinguish them from other addresses.
const DUMPED: [SetId; 12] = [
    SetId::Services,
    SetId::NodePorts,
    SetId::InternalServices,
    SetId::InternalNodePorts,
    SetId::NoEndpointServices,
    SetId::NoEndpointNodePorts,
    SetId::FirewallIps,
    SetId::SourceRanges,
    SetId::NodePortIps,
    SetId::HairpinConnections,
    SetId::AffinityEndpoints,
    SetId::AffinitySlots,
];

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
        let mut services = reading.services;
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
    by_frontend: HashMap<Frontend, usize>,
    /// Endpoints of lists with affinity that can be drawn, with their numbers of slots.
    drawn: HashMap<(Family, ListId, EndpointId), u32>,
    cluster_ips: HashSet<IpAddr>,
    is_torn: bool,
}

impl Reading {
    fn read_table(&mut self, reader: &mut TableReader, table: &OurTable) -> Result<(), ReadError> {
        let family = table.family;
        if !serves_node_ports_everywhere(&table.contents.rules) {
            self.services.restrict_node_ports(family);
        }
        for set in DUMPED {
            self.dump(reader, table, set)?;
        }
        self.find_cluster_ips(reader, table)?;
        self.find_endpoints(reader, family)?;
        let drawn = &self.drawn;
        for (id, list) in &mut self.services.lists[family.index()] {
            if id.has_affinity() {
                list.keep(|endpoint| drawn.get(&(family, *id, endpoint)).copied());
            } else {
                list.count_slots();
            }
        }
        self.services.timeouts[family.index()] = timeouts_of(table.contents.rules.iter());
        Ok(())
    }

    /// Looks up cluster IPs of frontends without a route, which have no flags that show it.
    fn find_cluster_ips(
        &mut self,
        reader: &mut TableReader,
        table: &OurTable,
    ) -> Result<(), ReadError> {
        let is_unknown = |it: &Entry| it.route.is_none() && it.frontend.family() == table.family;
        if !self.entries.iter().any(is_unknown) {
            return Ok(());
        }
        self.dump(reader, table, SetId::ClusterIps)?;
        for entry in self.entries.iter_mut().filter(|it| is_unknown(it)) {
            if let Frontend::Address { address, .. } = entry.frontend {
                entry.is_cluster_ip = self.cluster_ips.contains(&address);
            }
        }
        Ok(())
    }

    fn dump(
        &mut self,
        reader: &mut TableReader,
        table: &OurTable,
        set: SetId,
    ) -> Result<(), ReadError> {
        if reader.count(table, set) == Some(0) {
            return Ok(());
        }
        let family = table.family;
        let is_whole = reader.elements(family, set, &mut |view| {
            if let Some(element) = TableElement::read(family, set, &view) {
                self.add(family, &element, view.counter);
            }
        })?;
        self.is_torn |= !is_whole;
        Ok(())
    }

    fn add(&mut self, family: Family, element: &TableElement<'_>, counted: Option<Counter>) {
        match *element {
            TableElement::Route(frontend, route, label) => {
                let entry = self.entry(frontend);
                entry.route = Some(route);
                entry.counted = counted;
                entry.is_cluster_ip = is_to_cluster_ip(frontend, route);
                entry.set_label(label.unwrap_or_default());
            }
            TableElement::Internal(frontend, route) => {
                self.entry(frontend).internal = Some(route);
            }
            TableElement::NoEndpoint(frontend, unserved, label) => {
                let entry = self.entry(frontend);
                entry.unserved = Some(unserved);
                entry.set_label(label.unwrap_or_default());
            }
            TableElement::Firewall(frontend) => self.entry(frontend).has_source_ranges = true,
            TableElement::SourceRange(frontend, range) => {
                self.entry(frontend).source_ranges.push(range);
            }
            TableElement::Member(Member::ClusterIp(address)) => {
                self.cluster_ips.insert(address);
            }
            TableElement::Member(Member::NodePortIp(address)) => {
                self.services.add_node_port_ip(address);
            }
            TableElement::Member(Member::Hairpin(target, protocol)) => {
                self.services.add_local(target, protocol);
            }
            TableElement::AffinitySlot(list, _, id) => {
                *self.drawn.entry((family, list, id)).or_default() += 1;
            }
            TableElement::AffinityEndpoint(id, _, endpoint, target) => {
                let list = self.list(family, id);
                list.targets.push(target);
                list.ids.push(endpoint);
                list.counted.extend(counted);
            }
            // Endpoints are looked up by key.
            TableElement::Endpoint(..) | TableElement::AffinityList(..) => {}
        }
    }

    fn entry(&mut self, frontend: Frontend) -> &mut Entry {
        let entries = &mut self.entries;
        let place = *self.by_frontend.entry(frontend).or_insert_with(|| {
            entries.push(Entry::new(frontend));
            entries.len() - 1
        });
        &mut entries[place]
    }

    fn list(&mut self, family: Family, list: ListId) -> &mut List {
        self.services.lists[family.index()].entry(list).or_default()
    }

    fn find_endpoints(
        &mut self,
        reader: &mut TableReader,
        family: Family,
    ) -> Result<(), ReadError> {
        let mut slots = SlotKeys::new(self.plain_lists(family).into_values());
        let mut targets = Vec::new();
        loop {
            let keys = slots.next_keys();
            if keys.is_empty() {
                return Ok(());
            }
            let mut each =
                |view: ElementView<'_>| targets.push((target(family, &view), view.counter));
            let answered = reader.find(family, SetId::Endpoints, &keys, &mut each)?;
            for (target, counted) in targets.drain(..) {
                if let Some(((id, ..), target)) = slots.answered().zip(target) {
                    let list = self.list(family, id);
                    list.targets.push(target);
                    list.counted.extend(counted);
                }
            }
            if answered < keys.len() {
                slots.missing();
            }
        }
    }

    fn plain_lists(&self, family: Family) -> HashMap<ListId, NamedList> {
        let entries = self.entries.iter().filter(|entry| entry.frontend.family() == family);
        let named = entries.flat_map(|entry| {
            let protocol = entry.frontend.protocol();
            let routes = [entry.route, entry.internal].into_iter().flatten();
            routes.filter_map(move |route| {
                let list = route.list().filter(|list| !list.has_affinity())?;
                Some((list, NamedList { list, protocol, size: route.size() }))
            })
        });
        named.collect()
    }
}

/// Returns true for a cluster IP: external addresses are masqueraded, or their policy is `Local`.
fn is_to_cluster_ip(frontend: Frontend, route: Route) -> bool {
    let flags = route.flags();
    matches!(frontend, Frontend::Address { .. }) && !flags.masquerade && !flags.local
}

impl List {
    /// Keeps the endpoints of a list with affinity that have slots.
    fn keep(&mut self, slots: impl Fn(EndpointId) -> Option<u32>) {
        let slots: Vec<_> = self.ids.iter().map(|id| slots(*id)).collect();
        let is_kept: Vec<_> = slots.iter().map(Option::is_some).collect();
        keep(&mut self.targets, &is_kept);
        keep(&mut self.ids, &is_kept);
        keep(&mut self.counted, &is_kept);
        self.slots = slots.into_iter().flatten().collect();
    }
}

/// Keeps the items whose flag is set.
fn keep<T>(items: &mut Vec<T>, is_kept: &[bool]) {
    let mut is_kept = is_kept.iter();
    items.retain(|_| is_kept.next() == Some(&true));
}
