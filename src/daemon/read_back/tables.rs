//! Reading our tables as a whole.

use std::sync::Arc;
use std::time::Duration;

use engine::diff::{self, ReadLists};
use engine::doubt::Reading;
use engine::ruleset::{self, Layouts, NamedList, SetId, TableElement, TableSets};
use engine::{FoundTable, FoundTables, TableId};
use nft::kernel::{ElementRead, Kernel, ReadError};
use nft::{ElementView, Family, Operation, Value};

use super::direct_table::read_direct_return;

/// Elements of a dump between two calls of `progress`.
const STEP: usize = 4_096;

/// Elements below which a dump is as fast as a request for each.
const MIN_ASKED: u32 = 256;

/// When endpoint lists are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// With the tables.
    Now,
    /// Later, except those of UDP.
    Later,
}

/// Reads our tables. Does not detect changes of other programs meanwhile.
///
/// # Errors
/// See [`Kernel::read_table`] and [`Kernel::read_elements`].
pub fn read_back<K: Kernel>(kernel: &mut K, layouts: &Layouts) -> Result<FoundTables, ReadError> {
    read(kernel, layouts, (Lists::Now, &|| ()))
}

/// Reads our tables, and watches changes of other programs from then on. Calls `progress` now and
/// then.
///
/// # Errors
/// As for [`read_back`], and those of [`Kernel::watch_others`].
pub fn read_watching<K: Kernel>(
    kernel: &mut K,
    layouts: &Layouts,
    (lists, progress): (Lists, &dyn Fn()),
) -> Result<Reading, ReadError> {
    kernel.watch_others(&TableId::ALL.map(TableId::reference))?;
    // The tables as read below include the changes reported before.
    kernel.tampered();
    let tables = read(kernel, layouts, (lists, progress))?;
    let (is_torn, port) = (kernel.tampered(), kernel.port());
    Ok(Reading { tables, is_torn, port, took: Duration::ZERO })
}

fn read<K: Kernel>(
    kernel: &mut K,
    layouts: &Layouts,
    how: (Lists, &dyn Fn()),
) -> Result<FoundTables, ReadError> {
    let mut read = |family| read_table(kernel, layouts.of(family), how);
    let of_services = [read(Family::Ip)?, read(Family::Ip6)?];
    Ok(FoundTables { of_services, direct_return: read_direct_return(kernel)? })
}

fn read_table<K: Kernel>(
    kernel: &mut K,
    sets: &TableSets,
    (lists, progress): (Lists, &dyn Fn()),
) -> Result<FoundTable, ReadError> {
    let table = ruleset::table(sets.family);
    let mut found = FoundTable::nothing(sets.family);
    let Some(contents) = kernel.read_table(&table)? else { return Ok(found) };
    let read = sets.found_in(&contents).into_iter();
    // Packets write the clients of affinity, which may be many.
    for (set, elements) in read.filter(|(set, _)| *set != SetId::AffinityClients) {
        progress();
        if set == SetId::Endpoints
            && let Some(elements) = elements.filter(|it| lists == Lists::Later || *it >= MIN_ASKED)
            && let Ok(elements) = usize::try_from(elements)
            && read_by_keys(kernel, elements, &mut found.elements, lists)
        {
            found.sizes[set as usize] = elements;
            continue;
        }
        let family = sets.family;
        found.sizes[set as usize] = read_set(kernel, (family, set), &mut found.elements, progress)?;
    }
    let strays = found.elements.finish().into_iter();
    let strays = strays.map(|(set, strays)| (Arc::clone(sets.get(set)), strays.into()));
    let delete = |(set, strays)| Operation::DeleteElements(table.clone(), set, strays);
    found.cleanup = strays.map(delete).collect();
    found.contents = Some(contents);
    Ok(found)
}

/// Reads the lists that routes name, or leaves them. Returns false, and has read none, if the map
/// must be dumped: an answer failed, or there are other elements (Linux reports their number).
fn read_by_keys<K: Kernel>(
    kernel: &mut K,
    elements: usize,
    found: &mut diff::FoundElements,
    lists: Lists,
) -> bool {
    found.leave_lists(elements);
    let next = |found: &mut diff::FoundElements| match lists {
        Lists::Now => found.next_lists(),
        Lists::Later => found.udp_lists(),
    };
    let is_usable = loop {
        let named = next(found);
        if named.is_empty() {
            break found.may_have_all_lists();
        }
        match read_lists(kernel, found.family(), named) {
            Some(read) => found.read_lists(read),
            None => break false,
        }
    };
    if !is_usable {
        found.forget(SetId::Endpoints);
    }
    is_usable
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

/// Reads lists by the keys of their slots. `None` on an error, or if an endpoint is not ours: then the
/// dump reports it, or works without these requests.
pub(super) fn read_lists<K: Kernel>(
    kernel: &mut K,
    family: Family,
    lists: Vec<NamedList>,
) -> Option<ReadLists> {
    let (table, set) = (ruleset::table(family), SetId::Endpoints.name());
    let (mut endpoints, mut are_ours) = (Vec::new(), true);
    let find = |keys: &[Value], each: &mut dyn FnMut(ElementView<'_>)| {
        kernel.find_elements(&table, set, keys, each)
    };
    let mut each = |(list, protocol, slot), view: &ElementView<'_>| {
        let target = ruleset::target(family, view);
        are_ours &= target.is_some();
        endpoints.extend(target.map(|target| (list, protocol, slot, target)));
    };
    ruleset::read_slots(lists.iter().copied(), find, &mut each).ok()?;
    are_ours.then_some(ReadLists { family, lists, endpoints })
}
