//! Reading endpoints by their keys ([`SlotKeys`]).

use engine::diff::ReadLists;
use engine::ruleset::{self, NamedList, SetId, SlotKeys};
use nft::kernel::Kernel;
use nft::{ElementView, Family};

/// Reads lists by the keys of their slots. `None` on an error, or if an endpoint is not ours.
pub(super) fn read_lists<K: Kernel>(
    kernel: &mut K,
    family: Family,
    lists: Vec<NamedList>,
) -> Option<ReadLists> {
    let table = ruleset::table(family);
    let mut slots = SlotKeys::new(lists.iter().copied());
    let mut endpoints = Vec::new();
    loop {
        let keys = slots.next_keys();
        if keys.is_empty() {
            return Some(ReadLists { family, lists, endpoints });
        }
        let mut targets = Vec::with_capacity(keys.len());
        let mut each = |view: ElementView<'_>| targets.push(ruleset::target(family, &view));
        // On an error, the dump reports it or works without these requests.
        let answered =
            kernel.find_elements(&table, SetId::Endpoints.name(), &keys, &mut each).ok()?;
        for target in targets {
            let target = target?;
            if let Some((list, protocol, slot)) = slots.answered() {
                endpoints.push((list, protocol, slot, target));
            }
        }
        if answered < keys.len() {
            slots.missing();
        }
    }
}
