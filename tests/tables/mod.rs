//! What tests ask of a daemon's engine and the fake kernel behind it.

use std::collections::BTreeMap;

use deltaproxy::config::Routing;
use deltaproxy::desired::affinity::Affinity;
use deltaproxy::desired::{Fragment, KeptFragment, Key};
use deltaproxy::diff::Keep;
use deltaproxy::engine::{Engine, read_back};
use deltaproxy::kernel::{Fake, Kernel};
use deltaproxy::model::{Event, Protocol};
use deltaproxy::nft::TableFlags;
use proptest::prelude::ProptestConfig;

/// As many cases of each test as `PROPTEST_CASES` says, or so few.
pub(crate) fn config(few: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(few), ..ProptestConfig::default() }
}

pub(crate) fn engine() -> Engine {
    Engine::new(Routing::default(), TableFlags::default())
}

/// Commits what differs, in transactions of at most `max_batch` bytes.
pub(crate) fn settle(engine: &mut Engine, kernel: &mut Fake, max_batch: usize) {
    while let Some(step) = engine.next_step(max_batch) {
        kernel.commit(&step.transaction).expect("the kernel accepts every transaction");
        engine.committed(step);
    }
    assert!(engine.is_settled());
}

/// What both tables hold, slots in no particular order, and sessions by what they say instead of
/// their numbers.
pub(crate) fn contents(kernel: &mut Fake) -> BTreeMap<String, String> {
    let found = read_back(kernel, engine().layouts()).expect("the tables can be read");
    let mut fragments = BTreeMap::new();
    for found in found {
        assert!(found.contents.is_some() && found.cleanup.is_empty());
        fragments.extend(found.fragments);
    }
    let fragments: BTreeMap<Key, Fragment> =
        fragments.iter().map(|(key, kept)| (*key, sorted(kept))).collect();
    let mut texts = BTreeMap::new();
    for (key, fragment) in &fragments {
        let name = match key {
            Key::Session { .. } => format!("session {}", session_text(fragment)),
            _ => format!("{key:?}"),
        };
        let is_new = texts.insert(name.clone(), fragment_text(&fragments, key, fragment)).is_none();
        assert!(is_new || matches!(key, Key::Session { .. }), "{name} is there twice");
    }
    texts
}

/// The fragment without the order of its slots and the numbers in them, each of which stands for
/// one endpoint.
fn sorted(kept: &KeptFragment) -> Fragment {
    let mut fragment = Fragment::restore(kept);
    assert!(fragment.slots.iter().chain(&fragment.local_slots).all(Option::is_some));
    if let Some(Affinity::Session { ids, .. }) = fragment.affinity.as_deref_mut() {
        let mut numbers = ids.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), fragment.slots.len(), "each endpoint has a number of its own");
        assert!(numbers.iter().all(|number| *number > 0));
        *ids = Box::default();
    }
    fragment.slots.sort();
    fragment.local_slots.sort();
    fragment
}

fn session_text(fragment: &Fragment) -> String {
    let Some(Affinity::Session { timeout, .. }) = fragment.affinity.as_deref() else {
        panic!("{fragment:?} is no session");
    };
    assert!(*timeout > 0 && !fragment.slots.is_empty());
    let Fragment { sets, label, slots, .. } = fragment;
    format!("{label:?} {sets:x} {timeout} s {slots:?}")
}

fn fragment_text(fragments: &BTreeMap<Key, Fragment>, key: &Key, fragment: &Fragment) -> String {
    let sessions = match fragment.affinity.as_deref() {
        Some(Affinity::Frontend(sessions)) => *sessions,
        Some(Affinity::Session { .. }) => return String::new(),
        None => [None; 2],
    };
    let protocol = match key {
        Key::Frontend { protocol, .. } | Key::NodePort { protocol, .. } => *protocol,
        _ => Protocol::Tcp,
    };
    let sessions = sessions.map(|session| {
        let session = Key::Session { family: key.family(), protocol, session: session? };
        Some(session_text(fragments.get(&session).expect("a frontend's session is there")))
    });
    let fragment = Fragment { affinity: None, ..fragment.clone() };
    format!("{fragment:?} {sessions:?}")
}

/// What a daemon that starts now with these events would write.
pub(crate) fn from_scratch(events: &[Event]) -> BTreeMap<String, String> {
    let (mut engine, mut kernel) = (engine(), Fake::new());
    engine.apply(events.to_vec());
    settle(&mut engine, &mut kernel, usize::MAX);
    contents(&mut kernel)
}
