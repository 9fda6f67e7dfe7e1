//! Reads rules and elements from the kernel for the evaluator: rules whole, elements one by one.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use network::{Neighbour, NoRoute, Route, Rtnetlink, Way, interface_name};
use nft::kernel::{Generation, Nftables, OpenError, ReadError};
use nft::{AnyElement, AnySet, Family, Hook, Name, TableFamily, TableRef};

use super::packet::Interface;
use super::rules::{Facts, LookupResult, Rules};
use super::walk::INGRESS;

/// The kernel of this thread's network namespace.
#[derive(Debug)]
pub struct Kernel {
    pub(super) nftables: Nftables,
    requests: Rtnetlink,
    /// Rules of a family, with the generation of the read.
    pub(super) rules: HashMap<Family, (Generation, Arc<Rules>)>,
    found: Found,
}

/// What was looked up since [`Kernel::start`].
#[derive(Debug, Default)]
struct Found {
    elements: HashMap<(TableRef, String, Vec<u8>), LookupResult>,
    /// All elements of sets of ranges, sorted by key.
    ranges: HashMap<(TableRef, String), Option<Vec<AnyElement>>>,
    routes: HashMap<(IpAddr, Way), Option<Result<Route, NoRoute>>>,
    neighbours: HashMap<Family, Vec<Neighbour>>,
    called: HashMap<Hook, Option<Vec<(TableRef, Name)>>>,
}

/// Most elements of a set of ranges that are read.
const MOST_RANGES: usize = 200_000;

impl Kernel {
    /// Opens the netlink sockets.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open() -> Result<Self, OpenError> {
        Ok(Self {
            nftables: Nftables::open()?,
            requests: Rtnetlink::open()?,
            rules: HashMap::new(),
            found: Found::default(),
        })
    }

    /// Returns the generation of the rule set. Drops what was looked up.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn start(&mut self) -> Result<Generation, ReadError> {
        self.found = Found::default();
        self.nftables.generation()
    }

    /// Returns whether everything read since [`Kernel::start`] has one generation.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn is_unchanged(&mut self, since: Generation) -> Result<bool, ReadError> {
        self.nftables.is_unchanged(since)
    }

    /// Returns the tables of the packet's family and of families inet and netdev. Reads them again if the
    /// generation has changed.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn rules(&mut self, family: Family, now: Generation) -> Result<Arc<Rules>, ReadError> {
        if let Some((read, rules)) = self.rules.get(&family)
            && *read == now
        {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(self.read_rules(family)?);
        if self.nftables.is_unchanged(now)? {
            self.rules.insert(family, (now, Arc::clone(&rules)));
        }
        Ok(rules)
    }

    fn read_rules(&mut self, family: Family) -> Result<Rules, ReadError> {
        let mut rules = Rules::default();
        for family in [family.into(), TableFamily::Inet, TableFamily::Netdev] {
            for (table, chain) in self.nftables.chains(family)? {
                let table = rules.tables.entry(table).or_default();
                table.base_chains.extend(chain.base.map(|base| (chain.name, base)));
            }
        }
        // No packet passes a table without base chains.
        rules.tables.retain(|_, table| !table.base_chains.is_empty());
        for (id, table) in &mut rules.tables {
            for rule in self.nftables.rules(id)? {
                table.chains.entry(rule.chain.clone()).or_default().push(rule);
            }
            let sets = self.nftables.sets(id)?.into_iter();
            table.sets = sets.map(|set| (set.name.clone(), set)).collect();
        }
        Ok(rules)
    }

    /// Describes base chains that are not evaluated: those of family bridge, at the egress of
    /// devices, and at the ingress of an input interface that is not known.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn other_chains(&mut self, input: &Interface) -> Result<Vec<String>, ReadError> {
        let mut others = Vec::new();
        for family in [TableFamily::Bridge, TableFamily::Netdev] {
            for (table, chain) in self.nftables.chains(family)? {
                let hook = chain.base.map(|base| family.hook(base.hook));
                if hook.is_some_and(|hook| hook != INGRESS || !input.is_known()) {
                    others.push(format!("table {table} chain {}", chain.name));
                }
            }
        }
        Ok(others)
    }

    /// Describes tables of iptables-legacy, which are not evaluated.
    pub(super) fn legacy_tables(&self, family: Family) -> Option<String> {
        let (name, program) = match family {
            Family::Ip => ("/proc/net/ip_tables_names", "iptables"),
            Family::Ip6 => ("/proc/net/ip6_tables_names", "ip6tables"),
        };
        let tables = fs::read_to_string(name).unwrap_or_default();
        let tables: Vec<_> = tables.lines().collect();
        (!tables.is_empty())
            .then(|| format!("tables of {program}-legacy are not evaluated: {}", tables.join(", ")))
    }

    fn find(
        &mut self,
        table: &TableRef,
        set: &AnySet,
        key: &[u8],
    ) -> Result<LookupResult, ReadError> {
        if set.is_interval() && !set.is_concatenation() {
            return self.find_range(table, set, key);
        }
        let key = Some(key).filter(|key| !key.is_empty());
        Ok(match (self.nftables.element(table, &set.name, key)?, key) {
            (Some(found), _) => LookupResult::Element(found),
            // The catch-all element has no key.
            (None, Some(_)) => self.element(table, set, &[]),
            (None, None) => LookupResult::Missing,
        })
    }

    /// Finds the last range that starts at or before the key, unless it ends before it.
    fn find_range(
        &mut self,
        table: &TableRef,
        set: &AnySet,
        key: &[u8],
    ) -> Result<LookupResult, ReadError> {
        let place = (table.clone(), set.name.clone());
        if !self.found.ranges.contains_key(&place) {
            let mut elements = self.nftables.elements(table, &set.name, MOST_RANGES)?;
            if let Some(elements) = &mut elements {
                // Where one range ends and the next starts, the end comes first.
                elements.sort_by(|a, b| (&a.key, !a.is_end).cmp(&(&b.key, !b.is_end)));
            }
            self.found.ranges.insert(place.clone(), elements);
        }
        let Some(Some(elements)) = self.found.ranges.get(&place) else {
            return Ok(LookupResult::Unknown(format!("it has more than {MOST_RANGES} ranges")));
        };
        let after =
            elements.partition_point(|element| element.key.is_empty() || *element.key <= *key);
        let last = elements.get(..after).unwrap_or_default().last();
        let catch_all = elements.first().filter(|it| it.key.is_empty());
        let found = last.filter(|it| !it.is_end).or(catch_all);
        Ok(found.map_or(LookupResult::Missing, |found| LookupResult::Element(found.clone())))
    }
}

impl Facts for Kernel {
    fn element(&mut self, table: &TableRef, set: &AnySet, key: &[u8]) -> LookupResult {
        let place = (table.clone(), set.name.clone(), key.to_vec());
        if let Some(found) = self.found.elements.get(&place) {
            return found.clone();
        }
        let found = self.find(table, set, key);
        let found = found.unwrap_or_else(|error| LookupResult::Unknown(error.to_string()));
        self.found.elements.insert(place, found.clone());
        found
    }

    fn route(&mut self, destination: IpAddr, way: Way) -> Option<Result<Route, NoRoute>> {
        let requests = &mut self.requests;
        let found = self.found.routes.entry((destination, way));
        *found.or_insert_with(|| requests.route(destination, way).ok())
    }

    fn called_chains(&mut self, hook: &Hook) -> Option<Vec<(TableRef, Name)>> {
        let nftables = &mut self.nftables;
        let called = self.found.called.entry(hook.clone());
        called.or_insert_with(|| nftables.called_chains(hook).ok().flatten()).clone()
    }

    fn forwards(&mut self, family: Family) -> bool {
        let name = match family {
            Family::Ip => "/proc/sys/net/ipv4/ip_forward",
            Family::Ip6 => "/proc/sys/net/ipv6/conf/all/forwarding",
        };
        // Without /proc, only the route decides.
        fs::read_to_string(name).is_ok_and(|text| text.trim() != "0") || fs::metadata(name).is_err()
    }

    fn hardware_address(&mut self, neighbour: IpAddr, interface: u32) -> Option<[u8; 6]> {
        let family = Family::of(neighbour);
        let all = self
            .found
            .neighbours
            .entry(family)
            .or_insert_with(|| self.requests.neighbours(family).unwrap_or_default());
        let mut all = all.iter();
        all.find(|it| it.address == neighbour && it.interface == interface)?.hardware_address
    }

    fn interface_name(&mut self, index: u32) -> String {
        interface_name(index).unwrap_or_default()
    }
}
