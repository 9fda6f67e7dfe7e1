//! Looks up elements that another program may have changed.

use engine::ruleset::{self, SetId, TableElement};
use engine::{Changed, ElementId, Finding, Installed};
use nft::kernel::Kernel;

/// Looks up elements. `None` if they must be read with all others.
pub fn look_up_changed<K: Kernel>(kernel: &mut K, places: &[ElementId]) -> Option<Vec<Changed>> {
    // Packets write this map.
    let places = places.iter().filter(|place| place.set != SetId::AffinityClients);
    places.map(|place| Some(Changed { place: *place, finding: look_up(*place, kernel)? })).collect()
}

fn look_up<K: Kernel>(place: ElementId, kernel: &mut K) -> Option<Finding> {
    let ElementId { family, set, key } = place;
    // A lookup of an interval may find another one.
    if set == SetId::SourceRanges {
        return None;
    }
    let mut finding = Finding::Missing;
    let table = ruleset::table(family);
    kernel
        .find_elements(&table, set.name(), &[key], &mut |view| {
            let found = TableElement::read(family, set, &view);
            finding = Finding::Present(found.map(|found| Installed::found(family, &found)));
        })
        .ok()?;
    Some(finding)
}
