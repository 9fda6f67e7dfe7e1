//! Reading both tables as a whole.

use std::cmp::Reverse;
use std::sync::Arc;

use engine::FoundTable;
use engine::diff;
use engine::ruleset::{self, Layouts, SetId, TableElement, TableSets};
use nft::kernel::{Contents, ElementRead, Kernel, ReadError};
use nft::{DecodedSet, Family, Operation};

use super::slots::read_slots;

/// Elements of a dump between two calls of `progress`.
const STEP: usize = 4_096;

/// Elements below which a dump is as fast as a request for each.
const MIN_ASKED: u32 = 256;

/// Both tables as read.
#[derive(Debug)]
pub struct Reading {
    /// `ip` first.
    pub tables: [FoundTable; 2],
    /// Another program changed one of them meanwhile, so that the contents may never have existed.
    pub is_torn: bool,
}

/// Reads both tables; `ip` first. Does not detect changes of other programs meanwhile.
///
/// # Errors
/// See [`Kernel::read_table`] and [`Kernel::read_elements`].
pub fn read_back<K: Kernel>(
    kernel: &mut K,
    layouts: &Layouts,
) -> Result<[FoundTable; 2], ReadError> {
    read_noting(kernel, layouts, &|| ())
}

/// Reads both tables, and watches changes of other programs from then on. Calls `progress` now and
/// then.
///
/// # Errors
/// As for [`read_back`], and those of [`Kernel::watch_others`].
pub fn read_watching<K: Kernel>(
    kernel: &mut K,
    layouts: &Layouts,
    progress: &dyn Fn(),
) -> Result<Reading, ReadError> {
    kernel.watch_others(&Family::ALL.map(ruleset::table))?;
    // The tables as read below include the changes reported before.
    kernel.tampered();
    let tables = read_noting(kernel, layouts, progress)?;
    Ok(Reading { tables, is_torn: kernel.tampered() })
}

fn read_noting<K: Kernel>(
    kernel: &mut K,
    layouts: &Layouts,
    progress: &dyn Fn(),
) -> Result<[FoundTable; 2], ReadError> {
    let mut read = |family| read_table(kernel, layouts.of(family), progress);
    Ok([read(Family::Ip)?, read(Family::Ip6)?])
}

fn read_table<K: Kernel>(
    kernel: &mut K,
    sets: &TableSets,
    progress: &dyn Fn(),
) -> Result<FoundTable, ReadError> {
    let table = ruleset::table(sets.family);
    let mut found = FoundTable::nothing(sets.family);
    let Some(contents) = kernel.read_table(&table)? else { return Ok(found) };
    for (set, elements) in sets_to_read(sets, &contents) {
        progress();
        if set == SetId::Endpoints
            && elements.is_some_and(|elements| elements >= MIN_ASKED)
            && let Some(count) = read_by_keys(kernel, &contents, &mut found.elements)
        {
            found.sizes[set as usize] = count;
            continue;
        }
        let family = sets.family;
        found.sizes[set as usize] = read_set(kernel, (family, set), &mut found.elements, progress)?;
    }
    let strays = found.elements.finish().into_iter();
    let delete =
        |(set, strays)| Operation::DeleteElements(table.clone(), Arc::clone(sets.get(set)), strays);
    found.cleanup = strays.map(delete).collect();
    found.contents = Some(contents);
    Ok(found)
}

/// Returns our sets with their numbers of elements. Endpoints come last, because they are found by
/// the routes of frontends; those of lists with affinity come before the slots that name them.
fn sets_to_read(sets: &TableSets, contents: &Contents) -> Vec<(SetId, Option<u32>)> {
    let ours = |found: &DecodedSet| {
        // Packets write the clients of affinity, which may be many.
        let set = sets.identify(found).filter(|set| *set != SetId::AffinityClients)?;
        Some((set, found.elements))
    };
    let mut found: Vec<_> = contents.sets.iter().filter_map(ours).collect();
    found.sort_unstable_by_key(|(set, _)| Reverse(*set));
    found
}

/// Reads all endpoints by their expected keys; returns their number. Reads none if that fails.
fn read_by_keys<K: Kernel>(
    kernel: &mut K,
    contents: &Contents,
    found: &mut diff::FoundElements,
) -> Option<usize> {
    let count = read_slots(kernel, found);
    let set = contents.sets.iter().find(|set| set.name == SetId::Endpoints.name());
    let elements = set.and_then(|set| usize::try_from(set.elements?).ok());
    let is_whole = count.is_some() && elements == count;
    if !is_whole {
        found.forget(SetId::Endpoints);
    }
    elements.filter(|_| is_whole)
}

/// Dumps a set; returns its number of elements.
fn read_set<K: Kernel>(
    kernel: &mut K,
    (family, set): (Family, SetId),
    found: &mut diff::FoundElements,
    progress: &dyn Fn(),
) -> Result<usize, ReadError> {
    let mut elements = 0_usize;
    kernel.read_elements(&ruleset::table(family), set.name(), &mut |read| match read {
        ElementRead::Start => {
            elements = 0;
            found.forget(set);
        }
        ElementRead::Element(view) => {
            elements += 1;
            if elements.is_multiple_of(STEP) {
                progress();
            }
            match TableElement::read(family, set, &view) {
                Some(element) => found.add(&element),
                None => {
                    if let Some(stray) = ruleset::stray(&view) {
                        found.add_stray(set, stray);
                    }
                }
            }
        }
    })?;
    Ok(elements)
}
