//! Looks up installed elements in the kernel, a few at a time.

use engine::ruleset::{self, TableElement};
use engine::{Finding, Installed};
use nft::Value;
use nft::kernel::{Kernel, ReadError};

/// The outcome of a lookup in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Elements that were not found as installed.
    pub differences: Vec<(Installed, Finding)>,
    /// The lookup ended early because too many elements were missing.
    pub is_cut: bool,
}

impl Look {
    fn missing(&self) -> usize {
        self.differences.iter().filter(|(_, finding)| *finding == Finding::Missing).count()
    }
}

/// Looks up elements by their keys: about a hundred of one set at most (see
/// [`Kernel::find_elements`]). Ends after `max_missing` missing ones: each costs a request of its
/// own.
///
/// # Errors
/// See [`Kernel::find_elements`].
pub fn look_up<K: Kernel>(
    kernel: &mut K,
    mut expected: Vec<Installed>,
    max_missing: usize,
) -> Result<Look, ReadError> {
    let place = |it: &Installed| (it.family.index(), it.element.set());
    expected.sort_by_key(place);
    let mut look = Look::default();
    for group in expected.chunk_by(|a, b| place(a) == place(b)) {
        look_up_set(kernel, group, max_missing, &mut look)?;
    }
    Ok(look)
}

fn look_up_set<K: Kernel>(
    kernel: &mut K,
    mut group: &[Installed],
    max_missing: usize,
    look: &mut Look,
) -> Result<(), ReadError> {
    while let Some(first) = group.first() {
        if look.missing() > max_missing {
            look.is_cut = true;
            return Ok(());
        }
        let (family, set) = (first.family, first.element.set());
        let keys: Vec<Value> = group.iter().map(|it| it.element.to_key().key).collect();
        let mut answers = group.iter();
        let (table, differences) = (ruleset::table(family), &mut look.differences);
        kernel.find_elements(&table, set.name(), &keys, &mut |view| {
            let Some(expected) = answers.next() else { return };
            let found = TableElement::read(family, set, &view);
            let found = found.map(|element| Installed::found(family, &element));
            if found != Some(*expected) {
                differences.push((*expected, Finding::Present(found)));
            }
        })?;
        // The answers end at the first missing element.
        let missing = answers.next();
        differences.extend(missing.map(|missing| (*missing, Finding::Missing)));
        group = answers.as_slice();
    }
    Ok(())
}
