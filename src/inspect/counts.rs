//! Connections that the tables have counted, by service port, summed over successive samples.
//!
//! A replaced element starts at zero. Therefore a sum grows by the difference of each element since
//! the last read, and never decreases. Connections between the last read and the replacement of an
//! element are lost.

use std::cmp::Reverse;
use std::sync::Arc;

use ahash::HashMap;
use engine::model::Target;
use engine::ruleset::number::{ListId, Route};
use engine::ruleset::{Frontend, ListUse, NamedList, SetId, TableElement, without_scheduler};
use nft::Counter;
use nft::family::Family;
use nft::kernel::ReadError;

use super::tables::{OurTable, TableReader};

/// Most service ports that [`ConnectionSums::busiest`] returns.
pub const MOST_PORTS: usize = 1_000;

/// Most slots of endpoints in plain lists that are read at once.
const MOST_SLOTS: u32 = 10_000;

/// Sums by service port.
#[derive(Debug, Default)]
pub struct ConnectionSums {
    /// Keyed by `namespace/name:port`.
    ports: HashMap<Arc<str>, Port>,
    frontends: HashMap<Frontend, SeenFrontend>,
    endpoints: HashMap<EndpointKey, SeenEndpoint>,
    total: Counter,
    /// Number of the last sample; identifies elements that no longer exist.
    sample: u32,
}

/// Sums of one service port.
#[derive(Debug, Default)]
pub struct Port {
    /// All connections to the service port.
    pub counted: Counter,
    /// Connections by endpoint. Empty if the tables do not count them, or the service port is not
    /// one of the busiest.
    pub endpoints: HashMap<Target, Counter>,
    lists: Vec<(Family, NamedList)>,
    sample: u32,
}

/// Counter of a frontend's element at the last read.
#[derive(Debug)]
struct SeenFrontend {
    label: Arc<str>,
    counter: Counter,
    sample: u32,
}

/// Counter of an endpoint's element at the last read.
#[derive(Clone, Copy, Debug)]
struct SeenEndpoint {
    target: Target,
    counter: Counter,
    sample: u32,
}

/// Element of an endpoint: its list and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EndpointKey {
    family: Family,
    list: ListId,
    of: ListUse,
    number: u32,
}

impl ConnectionSums {
    /// Adds the counts since the last read. Tables without counters add nothing.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self, reader: &mut TableReader, tables: &[OurTable]) -> Result<(), ReadError> {
        let counting = |set| tables.iter().filter(move |table| has_counters(table, set));
        self.sample = self.sample.wrapping_add(1);
        let mut is_whole = true;
        for set in [SetId::Services, SetId::NodePorts, SetId::RangeServices] {
            for table in counting(set) {
                is_whole &= self.read_frontends(reader, table.family, set)?;
            }
        }
        // A torn read may lack existing elements.
        if is_whole {
            let sample = self.sample;
            self.frontends.retain(|_, seen| seen.sample == sample);
            self.ports.retain(|_, port| port.sample == sample);
        }
        for table in counting(SetId::Endpoints) {
            self.find_internal_lists(reader, table.family, SetId::InternalServices)?;
            self.find_internal_lists(reader, table.family, SetId::InternalNodePorts)?;
            if has_counters(table, SetId::RangeEndpoints) {
                self.find_internal_lists(reader, table.family, SetId::InternalRangeServices)?;
            }
        }
        if counting(SetId::Endpoints).next().is_some() {
            self.read_endpoints(reader, tables)?;
        }
        Ok(())
    }

    /// Returns the service ports with the most connections by label, in descending order.
    pub fn busiest(&self) -> Vec<(&Arc<str>, &Port)> {
        let mut ports: Vec<_> = self.ports.iter().collect();
        ports.sort_unstable_by_key(|(label, port)| (Reverse(port.counted.packets), *label));
        ports.truncate(MOST_PORTS);
        ports
    }

    /// Returns the connections to all service ports, including deleted ones.
    pub fn total(&self) -> Counter {
        self.total
    }

    /// Adds the counts of the frontends of a set. Returns whether all of them were read.
    fn read_frontends(
        &mut self,
        reader: &mut TableReader,
        family: Family,
        set: SetId,
    ) -> Result<bool, ReadError> {
        reader.elements(family, set, &mut |element, counter| {
            if let (TableElement::Route(frontend, route, label), Some(counter)) = (element, counter)
            {
                self.add_frontend((frontend, route), label.unwrap_or_default(), counter);
            }
        })
    }

    fn add_frontend(&mut self, (frontend, route): (Frontend, Route), label: &str, now: Counter) {
        let (label, _) = without_scheduler(label);
        let label = match self.ports.get_key_value(label) {
            Some((label, _)) => Arc::clone(label),
            None => Arc::from(label),
        };
        let seen = SeenFrontend { label: Arc::clone(&label), counter: now, sample: self.sample };
        let last = self.frontends.insert(frontend, seen);
        // The element of another service port is a different element.
        let last =
            last.filter(|last| last.label == label).map(|last| last.counter).unwrap_or_default();
        let grown = now.since(last);
        self.total += grown;
        let port = self.ports.entry(label).or_default();
        port.counted += grown;
        if port.sample != self.sample {
            port.sample = self.sample;
            port.lists.clear();
        }
        port.add_list(frontend, route);
    }

    /// Collects the lists of internal routes.
    fn find_internal_lists(
        &mut self,
        reader: &mut TableReader,
        family: Family,
        set: SetId,
    ) -> Result<bool, ReadError> {
        reader.elements(family, set, &mut |element, _| {
            if let TableElement::Internal(frontend, route) = element
                && let Some(seen) = self.frontends.get(&frontend)
                && let Some(port) = self.ports.get_mut(&seen.label)
            {
                port.add_list(frontend, route);
            }
        })
    }

    /// Adds the counts of the endpoints of the busiest service ports.
    fn read_endpoints(
        &mut self,
        reader: &mut TableReader,
        tables: &[OurTable],
    ) -> Result<(), ReadError> {
        let mut wanted: HashMap<(Family, ListId), (NamedList, Arc<str>)> = HashMap::default();
        let mut slots = 0_u32;
        for (label, port) in self.busiest() {
            let of_port = port.lists.iter().map(|(_, list)| list.size.most()).sum::<u32>();
            // A large table of one service port leaves the room to the next ones.
            if slots + of_port > MOST_SLOTS {
                continue;
            }
            slots += of_port;
            let lists = port.lists.iter().map(|(family, list)| (*family, *list));
            wanted.extend(lists.map(|(f, list)| ((f, list.list), (list, Arc::clone(label)))));
        }
        let mut grown: HashMap<Arc<str>, HashMap<Target, Counter>> = HashMap::default();
        for table in tables {
            let family = table.family;
            let mut each = |key: EndpointKey, target, counter: Option<Counter>| {
                let of_list = wanted.get(&(family, key.list));
                let Some(((_, label), counter)) = of_list.zip(counter) else { return };
                let seen = SeenEndpoint { target, counter, sample: self.sample };
                let last = self.endpoints.insert(key, seen).filter(|last| last.target == target);
                let added = counter.since(last.map(|last| last.counter).unwrap_or_default());
                *grown.entry(Arc::clone(label)).or_default().entry(target).or_default() += added;
            };
            let of_family = wanted.iter().filter(|((own, _), _)| *own == family);
            let (sticky, plain): (Vec<_>, Vec<_>) =
                of_family.map(|(_, (list, _))| *list).partition(|list| list.list.has_affinity());
            reader.endpoints(
                family,
                plain.into_iter(),
                &mut |(list, protocol, number), target, counter| {
                    let of = ListUse::Port(protocol);
                    each(EndpointKey { family, list, of, number }, target, counter);
                },
            )?;
            let sessions = [SetId::AffinityEndpoints, SetId::RangeEndpoints];
            for set in sessions.into_iter().filter(|set| has_counters(table, *set)) {
                if !sticky.is_empty() {
                    read_sessions(reader, (family, set), &mut each)?;
                }
            }
        }
        let sample = self.sample;
        self.endpoints.retain(|_, seen| seen.sample == sample);
        for (label, port) in &mut self.ports {
            let mut endpoints = grown.remove(label).unwrap_or_default();
            for (target, counter) in &mut endpoints {
                *counter += port.endpoints.get(target).copied().unwrap_or_default();
            }
            port.endpoints = endpoints;
        }
        Ok(())
    }
}

impl Port {
    fn add_list(&mut self, frontend: Frontend, route: Route) {
        let Some(list) = route.list() else { return };
        let (family, protocol) = (frontend.family(), frontend.protocol());
        let named = (family, NamedList { list, protocol, size: route.size() });
        if !self.lists.contains(&named) {
            self.lists.push(named);
        }
    }
}

fn has_counters(table: &OurTable, set: SetId) -> bool {
    let found = table.contents.sets.iter().find(|found| found.name == set.name());
    found.and_then(|found| found.set.as_ref()).is_some_and(|set| set.counter)
}

/// Reads the counts of endpoints of lists with affinity.
fn read_sessions(
    reader: &mut TableReader,
    (family, set): (Family, SetId),
    each: &mut dyn FnMut(EndpointKey, Target, Option<Counter>),
) -> Result<(), ReadError> {
    let read = reader.elements(family, set, &mut |element, counter| {
        if let Some((list, of, id, target)) = element.session() {
            each(EndpointKey { family, list, of, number: id.into() }, target, counter);
        }
    });
    read.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use engine::model::Protocol;
    use engine::ruleset::number::{Flags, SizeClass};

    use super::*;

    fn at(port: u16) -> (Frontend, Route) {
        let port = NonZeroU16::new(port).unwrap();
        let frontend = Frontend::NodePort { family: Family::Ip, protocol: Protocol::Tcp, port };
        let list = ListId::plain(0x100 + u32::from(port.get()));
        (frontend, Route::new(list, None, SizeClass::of(1), Flags::default()))
    }

    fn counter(packets: u64) -> Counter {
        Counter { packets, bytes: 60 * packets }
    }

    #[test]
    fn a_sum_of_frontends_grows_also_when_one_of_them_begins_at_zero() {
        let mut counts = ConnectionSums::default();
        for (first, second, expected) in [(100, 50, 150), (110, 50, 160), (3, 51, 164)] {
            counts.sample += 1;
            counts.add_frontend(at(1), "a/b:http", counter(first));
            counts.add_frontend(at(2), "a/b:http", counter(second));
            assert_eq!(counts.ports["a/b:http"].counted, counter(expected));
            assert_eq!(counts.total(), counter(expected));
        }
    }

    #[test]
    fn a_frontend_that_another_service_has_now_begins_at_zero() {
        let mut counts = ConnectionSums::default();
        counts.add_frontend(at(1), "a/b", counter(5));
        counts.add_frontend(at(1), "a/c", counter(7));
        assert_eq!(counts.ports["a/b"].counted, counter(5));
        assert_eq!(counts.ports["a/c"].counted, counter(7));
    }

    #[test]
    fn the_busiest_are_so_many_and_the_rest_is_in_the_total() {
        let mut counts = ConnectionSums::default();
        let most = u16::try_from(MOST_PORTS).unwrap();
        for port in 1..=most + 10 {
            counts.add_frontend(at(port), &format!("a/{port}"), counter(port.into()));
        }
        let busiest = counts.busiest();
        let numbers: Vec<_> = busiest.iter().map(|(_, port)| port.counted.packets).collect();
        assert_eq!(numbers, (11..=u64::from(most) + 10).rev().collect::<Vec<_>>());
        assert_eq!(counts.total(), counter((1..=u64::from(most) + 10).sum()));
    }

    #[test]
    fn each_list_of_a_service_port_is_read_once() {
        let mut counts = ConnectionSums::default();
        for sample in 1..3 {
            counts.sample = sample;
            let (address, route) = at(1);
            counts.add_frontend((address, route), "a/b", counter(1));
            counts.add_frontend((at(2).0, route), "a/b", counter(1));
            assert_eq!(counts.ports["a/b"].lists.len(), 1);
        }
    }
}
