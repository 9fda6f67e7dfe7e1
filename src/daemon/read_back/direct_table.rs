//! Reading the table of direct return as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::direct::ruleset::{DirectElement, DirectSet, table};
use engine::direct::{Found, is_own};
use engine::ruleset::stray;
use nft::kernel::{ElementRead, Kernel, ReadError};
use nft::{DecodedSet, Element, Operation};

/// Reads the table with its elements, but for those that packets write.
///
/// # Errors
/// See [`Kernel::read_table`] and [`Kernel::read_elements`].
pub fn read_direct_return<K: Kernel>(kernel: &mut K) -> Result<Found, ReadError> {
    let contents = kernel.read_table(&table())?;
    let mut found = Found { contents, ..Found::default() };
    let own = found.contents.iter().filter(|contents| is_own(contents));
    let sets = own.flat_map(|contents| &contents.sets);
    let ours = sets.filter_map(|set| Some((DirectSet::by_name(&set.name)?, set.clone())));
    let ours: BTreeMap<DirectSet, DecodedSet> = ours.collect();
    for (id, decoded) in ours.into_iter().filter(|(id, _)| !id.is_written_by_packets()) {
        let strays = read_set(kernel, id, &mut found.elements)?;
        if let Some(set) = decoded.set.filter(|_| !strays.is_empty()) {
            found.cleanup.push(Operation::DeleteElements(table(), Arc::new(set), strays.into()));
        }
    }
    Ok(found)
}

/// Reads the elements of a set; returns those that this program never writes.
fn read_set<K: Kernel>(
    kernel: &mut K,
    id: DirectSet,
    elements: &mut Vec<DirectElement>,
) -> Result<Vec<Element>, ReadError> {
    let (before, mut strays) = (elements.len(), Vec::new());
    kernel.read_elements(&table(), id.name(), &mut |read| match read {
        ElementRead::Start => {
            elements.truncate(before);
            strays.clear();
        }
        ElementRead::Element(view) => match DirectElement::read(id, &view) {
            Some(element) => elements.push(element),
            None => strays.extend(stray(&view)),
        },
    })?;
    Ok(strays)
}
