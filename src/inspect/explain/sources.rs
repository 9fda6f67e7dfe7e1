//! The sources that may use a load balancer address.
//!
//! A rule drops packets of other sources before any rule looks up the service, so the service is
//! looked up here.

use std::net::IpAddr;

use engine::ruleset::{Frontend, SetId, TableElement};
use ipnet::IpNet;
use nft::kernel::ReadError;
use nft::{ElementView, TableRef};

use super::kernel::Kernel;
use super::rules::{Facts, LookupResult};
use super::service::{Service, elements, service};
use super::step::{Prediction, value};
use super::words::our_family;

/// Sources that may use a load balancer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRanges {
    /// The service of the address; `None` if it changed during the lookup.
    pub service: Option<Service>,
    /// The ranges; `None` if the tables have too many to be read.
    pub ranges: Option<Vec<IpNet>>,
    /// The source of the packet is in a range.
    pub is_allowed: bool,
}

/// Most elements that are read for the ranges of one address.
const MOST_READ: usize = 200_000;

impl Kernel {
    /// Returns the ranges of the load balancer address to which a packet was sent; `None` if it has
    /// none.
    pub(super) fn source_ranges(
        &mut self,
        table: &TableRef,
        prediction: &Prediction,
        source: IpAddr,
    ) -> Result<Option<SourceRanges>, ReadError> {
        let restricted = |element| {
            if let TableElement::Restricted(frontend) = element { Some(frontend) } else { None }
        };
        let Some(frontend) = elements(prediction).find_map(restricted) else { return Ok(None) };
        let ranges = self.ranges_of(table, frontend)?;
        let is_allowed = ranges
            .as_ref()
            .is_some_and(|ranges| ranges.iter().any(|range| range.contains(&source)));
        let service = self.service_of(table, frontend);
        Ok(Some(SourceRanges { service, ranges, is_allowed }))
    }

    /// Returns the service of a frontend.
    pub(super) fn service_of(&mut self, table: &TableRef, frontend: Frontend) -> Option<Service> {
        let sets = match frontend {
            Frontend::Address { .. } => [SetId::Services, SetId::UnservedServices],
            Frontend::NodePort { .. } => [SetId::NodePorts, SetId::UnservedNodePorts],
            Frontend::Ranges { .. } => [SetId::RangeServices, SetId::UnservedRangeServices],
        };
        sets.into_iter().find_map(|set| self.service_at(table, frontend, set))
    }

    fn service_at(&mut self, table: &TableRef, frontend: Frontend, set: SetId) -> Option<Service> {
        let key = TableElement::Restricted(frontend).to_key().key.as_bytes().to_vec();
        let read = self.rules.values().find_map(|(_, rules)| rules.tables.get(table))?;
        let found = read.sets.get(set.name()).cloned()?;
        let LookupResult::Element(found) = self.element(table, &found, &key) else { return None };
        let (data, comment) = (value(found.data.as_ref()), found.comment());
        let view = ElementView { key: &key, data, comment, ..ElementView::default() };
        TableElement::read(our_family(table)?, set, &view).and_then(service)
    }

    fn ranges_of(
        &mut self,
        table: &TableRef,
        frontend: Frontend,
    ) -> Result<Option<Vec<IpNet>>, ReadError> {
        let Some(family) = our_family(table) else { return Ok(None) };
        let mut ranges = Vec::new();
        let mut count = 0;
        let set = SetId::SourceRanges;
        let is_whole = self.nftables.read_elements_once(table, set.name(), &mut |view| {
            count += 1;
            match TableElement::read(family, set, &view) {
                Some(TableElement::SourceRange(of, range)) if of == frontend => ranges.push(range),
                Some(_) | None => {}
            }
        })?;
        ranges.sort_unstable();
        Ok(Some(ranges).filter(|_| is_whole && count <= MOST_READ))
    }
}
