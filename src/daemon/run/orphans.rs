//! The search for elements that are not installed, in sets that have more elements than were written.
//!
//! A set is dumped beside the loop, over another socket where there is one. Installed elements are
//! taken away from the dump, a group of services at a time. The others are looked up by their keys,
//! so a dump may be torn by our own commits.

use ahash::{HashMap, HashSet};
use engine::ElementId;
use engine::model::ObjectName;
use engine::ruleset::{self, SetId};
use engine::schedule::Input;
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::Value;
use nft::family::Family;
use nft::kernel::{ElementRead, Kernel, ReadError};

use super::{Run, now};
use crate::writer::{Writer, WriterGone};

/// Opens another socket to the kernel, with a thread.
pub type OpenReader<K> = Box<dyn Fn() -> Option<Writer<K>> + Send>;

/// The keys of the elements of each set that was dumped.
type Keys = HashMap<(Family, SetId), HashSet<Value>>;

type Dumping = BoxFuture<'static, Result<Result<Keys, ReadError>, WriterGone>>;

/// A search.
pub(super) enum Search {
    /// The sets are dumped.
    Dumping(Dumping),
    /// Installed elements are taken away from the dump, those of the services after `last` next.
    Comparing { found: Keys, last: Option<ObjectName> },
    /// The other elements are looked up.
    LookingUp(Vec<ElementId>),
}

/// Services compared at once, which takes some 0.1 ms.
const GROUP: usize = 256;

/// Places looked up in a step, each with a request of its own.
const PLACES: usize = 64;

/// Most orphans that are deleted one by one. With more, the tables are read.
const MAX_ORPHANS: usize = 4_096;

/// Waits for the dump of a search.
pub(super) async fn dumped(
    search: &mut Option<Search>,
) -> Result<Result<Keys, ReadError>, WriterGone> {
    match search {
        Some(Search::Dumping(dump)) => dump.await,
        Some(Search::Comparing { .. } | Search::LookingUp(_)) | None => {
            std::future::pending().await
        }
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Begins a search in these sets.
    pub(super) fn search_orphans(&mut self, sets: Vec<(Family, SetId)>) {
        if sets.is_empty() {
            return;
        }
        let reader = self.reads.open_reader();
        let dump = reader.as_ref().unwrap_or(&self.writer).run(move |kernel| dump(kernel, sets));
        let dumping = async move {
            let dumped = dump.await;
            // Its thread ends with this handle.
            drop(reader);
            dumped
        };
        self.reads.check.search = Some(Search::Dumping(dumping.boxed()));
    }

    /// Compares a dump from now on.
    pub(super) fn compare_dump(&mut self, dump: Result<Keys, ReadError>) {
        self.reads.check.search = match dump {
            Ok(found) => Some(Search::Comparing { found, last: None }),
            Err(error) => {
                tracing::warn!("cannot search for elements without a service: {error}");
                self.schedule.handle(Input::ReadNow, now());
                None
            }
        };
    }

    /// Does the next step of a search.
    pub(super) async fn search_step(&mut self) -> Result<(), WriterGone> {
        match &mut self.reads.check.search {
            Some(Search::Comparing { found, last }) => {
                let mut take = |installed| {
                    let ElementId { family, set, key } = ElementId::of_installed(&installed);
                    found.get_mut(&(family, set)).map(|keys| keys.remove(&key));
                };
                let services = self.engine.services_after(last.as_ref(), GROUP);
                for service in &services {
                    self.engine.each_installed(Some(service), &mut take);
                }
                if let Some(name) = services.last() {
                    *last = Some(name.clone());
                    return Ok(());
                }
                self.engine.each_installed(None, &mut take);
                let found = std::mem::take(found);
                self.look_up_orphans(found);
            }
            Some(Search::LookingUp(places)) => {
                let piece = places.split_off(places.len().saturating_sub(PLACES));
                if places.is_empty() {
                    self.reads.check.search = None;
                }
                if !self.repair_places(piece).await? {
                    self.schedule.handle(Input::ReadNow, now());
                }
            }
            Some(Search::Dumping(_)) | None => {}
        }
        Ok(())
    }

    fn look_up_orphans(&mut self, found: Keys) {
        let places = found.into_iter().flat_map(|((family, set), keys)| {
            keys.into_iter().map(move |key| ElementId { family, set, key })
        });
        let mut places: Vec<ElementId> = places.collect();
        let are_few = places.len() <= MAX_ORPHANS;
        if are_few {
            places.sort_unstable();
        }
        self.reads.check.search =
            (are_few && !places.is_empty()).then_some(Search::LookingUp(places));
        if !are_few {
            self.schedule.handle(Input::ReadNow, now());
        }
    }
}

/// Returns the keys of the elements of sets. Commits meanwhile may cause missing keys, and keys of
/// deleted elements.
fn dump<K: Kernel>(kernel: &mut K, sets: Vec<(Family, SetId)>) -> Result<Keys, ReadError> {
    let mut found = Keys::default();
    for (family, set) in sets {
        let mut keys = HashSet::default();
        let mut each = |read: ElementRead<'_>| match read {
            ElementRead::Start => keys.clear(),
            ElementRead::Element(view) => keys.extend(Value::from_bytes(view.key)),
        };
        match kernel.read_elements(&ruleset::table(family), set.name(), &mut each) {
            Ok(()) | Err(ReadError::Changing { .. }) => {}
            Err(error) => return Err(error),
        }
        found.insert((family, set), keys);
    }
    Ok(found)
}
