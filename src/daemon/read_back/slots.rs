//! Reading endpoints by their keys ([`SlotKeys`]).
//!
//! The kernel reports the number of elements of a map (seen in Linux 6.18). From it follows whether
//! the routes lead to all of them.

use engine::diff;
use engine::ruleset::{self, SetId, SlotKeys};
use nft::ElementView;
use nft::kernel::Kernel;

/// Reads the endpoints of all lists that routes name; returns their number. `None` if the map must
/// be dumped.
pub(super) fn read_slots<K: Kernel>(
    kernel: &mut K,
    found: &mut diff::FoundElements,
) -> Option<usize> {
    let family = found.family();
    let table = ruleset::table(family);
    let mut slots = SlotKeys::new(found.plain_lists().into_values());
    let mut count = 0;
    loop {
        let keys = slots.next_keys();
        if keys.is_empty() {
            return Some(count);
        }
        let mut targets = Vec::with_capacity(keys.len());
        let mut each = |view: ElementView<'_>| targets.push(ruleset::target(family, &view));
        // On an error, the dump reports it or works without these requests.
        let answered =
            kernel.find_elements(&table, SetId::Endpoints.name(), &keys, &mut each).ok()?;
        for target in targets {
            count += 1;
            let target = target?;
            if let Some((list, protocol, slot)) = slots.answered() {
                found.put(list, protocol, slot, target);
            }
        }
        if answered < keys.len() {
            slots.missing();
        }
    }
}
