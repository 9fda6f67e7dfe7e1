//! Packets to each frontend that were rejected or dropped.

use ahash::HashMap;
use engine::ruleset::{Frontend, Refusal, SetId, TableElement, Unserved};
use nft::Counter;

use super::services::Services;
use crate::refusals::refused_packets;
use crate::tables::{TableReader, TablesError};

/// Sets whose elements count refused packets.
const COUNTING: [SetId; 5] = [
    SetId::UnservedServices,
    SetId::UnservedNodePorts,
    SetId::SourceRefusals,
    SetId::UnservedRangeServices,
    SetId::RangeSourceRefusals,
];

/// Refused packets of each frontend that may refuse some.
#[derive(Debug, Default)]
pub(super) struct RefusedByFrontend(HashMap<Frontend, Vec<(Refusal, Counter)>>);

impl RefusedByFrontend {
    /// Adds the counter of an element, if it counts refused packets.
    pub(super) fn add(&mut self, element: &TableElement<'_>, counter: Option<Counter>) {
        let (frontend, reason) = match *element {
            TableElement::Unserved(frontend, Unserved::Refuse, _) => {
                (frontend, Refusal::NoEndpoint)
            }
            TableElement::Unserved(frontend, Unserved::Drop, _) => {
                (frontend, Refusal::NoLocalEndpoint)
            }
            TableElement::SourceRefusals(frontend) => (frontend, Refusal::SourceRange),
            TableElement::Endpoint(..)
            | TableElement::Route(..)
            | TableElement::Internal(..)
            | TableElement::Member(_)
            | TableElement::Restricted(_)
            | TableElement::SourceRange(..)
            | TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::RangeEndpoint(..)
            | TableElement::PortBlock(..)
            | TableElement::AffinityList(..)
            | TableElement::Ended(..) => return,
        };
        if let Some(counter) = counter {
            self.0.entry(frontend).or_default().push((reason, counter));
        }
    }

    /// Returns the counts of a frontend.
    pub(super) fn of(&self, frontend: &Frontend) -> &[(Refusal, Counter)] {
        self.0.get(frontend).map_or(&[], Vec::as_slice)
    }
}

/// Reads the counts of refused packets again. They change without a commit.
///
/// # Errors
/// See [`TablesError`].
pub fn refresh_refused(
    reader: &mut TableReader,
    services: &mut Services,
) -> Result<(), TablesError> {
    let tables = reader.tables()?;
    let mut found = RefusedByFrontend::default();
    for table in &tables {
        let family = table.family;
        let sets = reader.sets(table).into_iter();
        for (set, _) in sets.filter(|(set, count)| COUNTING.contains(set) && *count != Some(0)) {
            reader.elements(family, set, &mut |element, counter| found.add(&element, counter))?;
        }
    }
    services.refused = refused_packets(&tables);
    for entry in &mut services.entries {
        entry.refused.clear();
        entry.refused.extend_from_slice(found.of(&entry.frontend));
    }
    Ok(())
}
