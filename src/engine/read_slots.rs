//! Reading endpoints by their keys ([`SlotKeys`]).
//!
//! Where the kernel reports how many elements a map has (seen in Linux 6.18), it is known whether
//! those that routes lead to are all.

use crate::diff;
use crate::kernel::Kernel;
use crate::nft::ElementView;
use crate::ruleset::{self, SetId, SlotKeys};

/// Reads the endpoints of all lists that routes name; returns how many there are. `None` if the map
/// must be dumped.
pub(super) fn read_slots<K: Kernel>(kernel: &mut K, found: &mut diff::Found) -> Option<usize> {
    let table = ruleset::table(found.family());
    let mut slots = SlotKeys::new(found.plain_lists().into_values());
    let mut count = 0;
    loop {
        let keys = slots.next_keys();
        if keys.is_empty() {
            return Some(count);
        }
        let mut targets = Vec::with_capacity(keys.len());
        let mut each = |view: ElementView<'_>| targets.push(ruleset::target(table.family, &view));
        // A dump reports the error, or does without these requests.
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
