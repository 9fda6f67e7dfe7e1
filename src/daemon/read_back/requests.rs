//! Requests of [`engine::doubt`] to the kernel.

use std::time::Instant;

use engine::doubt::{Reading, Reply, Request, Rules, Size};
use engine::ruleset::{self, Layouts, SetId, TableElement};
use engine::{Changed, ElementId, Finding, InstalledElement};
use nft::kernel::{ElementRead, Kernel, ReadError};
use nft::{Family, Value};

use super::direct_table::read_direct_return;
use super::tables::{Lists, read_lists, read_watching};

/// Keys of one request: all answers must fit the receive buffer.
const KEYS: usize = 64;

/// Returns the answer to a request. Calls `clock`, which returns the time, now and then during long ones.
///
/// # Errors
/// See [`ReadError`].
pub fn answer<K: Kernel>(
    kernel: &mut K,
    request: &Request,
    layouts: &Layouts,
    clock: &dyn Fn() -> Instant,
) -> Result<Reply, ReadError> {
    Ok(match request {
        Request::Tables | Request::TablesWithoutLists => {
            let lists = if *request == Request::Tables { Lists::Now } else { Lists::Later };
            let started = clock();
            let progress = || {
                clock();
            };
            let read = read_watching(kernel, layouts, (lists, &progress))?;
            Reply::Tables(Box::new(Reading { took: clock() - started, ..read }))
        }
        Request::DirectReturn => Reply::DirectReturn(read_direct_return(kernel)?),
        Request::Lists(family, lists) => {
            read_lists(kernel, *family, lists.clone()).map_or(Reply::Failed, Reply::Lists)
        }
        Request::Rules(family) => {
            let contents = kernel.read_table(&ruleset::table(*family))?;
            Reply::Rules(Rules { family: *family, contents, port: kernel.port() })
        }
        Request::Keys(places) => Reply::Keys(look_up(kernel, places)?),
        Request::Sizes(sets) => Reply::Sizes(count(kernel, sets)?),
        Request::Dump(sets) => Reply::Dump(dump(kernel, sets)?),
    })
}

/// Looks up elements of a refused transaction. `None` if the tables must be read.
pub fn look_up_changed<K: Kernel>(kernel: &mut K, places: &[ElementId]) -> Option<Vec<Changed>> {
    look_up(kernel, places).ok()
}

fn look_up<K: Kernel>(kernel: &mut K, places: &[ElementId]) -> Result<Vec<Changed>, ReadError> {
    let mut places = places.to_vec();
    places.sort_unstable();
    let mut found = Vec::with_capacity(places.len());
    for of_set in places.chunk_by(|a, b| (a.family, a.set) == (b.family, b.set)) {
        look_up_in_set(kernel, of_set, &mut found)?;
    }
    Ok(found)
}

fn look_up_in_set<K: Kernel>(
    kernel: &mut K,
    places: &[ElementId],
    found: &mut Vec<Changed>,
) -> Result<(), ReadError> {
    let mut rest = places;
    while let Some(&ElementId { family, set, .. }) = rest.first() {
        let (asked, _) = rest.split_at(rest.len().min(KEYS));
        let keys: Vec<Value> = asked.iter().map(|place| place.key.clone()).collect();
        let mut answers = asked.iter();
        kernel.find_elements(&ruleset::table(family), set.name(), &keys, &mut |view| {
            let element = TableElement::read(family, set, &view);
            let finding = Finding::Present(element.map(|it| InstalledElement::found(family, &it)));
            found.extend(answers.next().cloned().map(|place| Changed { place, finding }));
        })?;
        // The answers end at the first missing element.
        let missing = answers.next().cloned();
        found.extend(missing.map(|place| Changed { place, finding: Finding::Missing }));
        rest = &rest[asked.len() - answers.len()..];
    }
    Ok(())
}

/// Returns the number of elements of each set.
fn count<K: Kernel>(kernel: &mut K, sets: &[(Family, SetId)]) -> Result<Vec<Size>, ReadError> {
    let size = |&(family, set): &(Family, SetId)| {
        let found = kernel.count_elements(&ruleset::table(family), set.name())?;
        Ok(Size { family, set, found, written: 0 })
    };
    sets.iter().map(size).collect()
}

/// Returns the elements of sets.
fn dump<K: Kernel>(kernel: &mut K, sets: &[(Family, SetId)]) -> Result<Vec<ElementId>, ReadError> {
    let mut found = Vec::new();
    for &(family, set) in sets {
        let before = found.len();
        let mut each = |read: ElementRead<'_>| match read {
            ElementRead::Start => found.truncate(before),
            ElementRead::Element(view) => {
                let key = Value::from_bytes(view.key);
                found.extend(key.map(|key| ElementId { family, set, key }));
            }
        };
        match kernel.read_elements(&ruleset::table(family), set.name(), &mut each) {
            Ok(()) | Err(ReadError::Changing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
