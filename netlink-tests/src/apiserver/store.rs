//! The objects and their changes, with versions as in etcd.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::form::Form;
use super::kind::Kind;
use super::stream::append_chunk;

/// All objects. Versions grow with every change of any object.
#[derive(Clone, Debug)]
pub(super) struct Store {
    version: u64,
    /// Watches from before this version have missed something.
    oldest: u64,
    tables: [Table; Kind::COUNT],
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// By `namespace/name`, which is the order of a real server's lists.
    objects: BTreeMap<String, Value>,
    /// The objects as chunks of an answer, until one changes: a real server's watch cache keeps
    /// objects encoded too.
    chunks: [Option<Arc<[u8]>>; Form::COUNT],
    log: Vec<StoredChange>,
}

#[derive(Clone, Debug)]
struct StoredChange {
    version: u64,
    event: Value,
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) items: Vec<Value>,
    /// Where the next page starts, if there is one.
    pub(super) next: Option<String>,
}

impl Default for Store {
    fn default() -> Self {
        // A real server's first list is never of version 0, which has a special meaning.
        Self { version: 10, oldest: 0, tables: Default::default() }
    }
}

impl Store {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Takes over a recorded list, versions included.
    pub(super) fn load(&mut self, kind: Kind, list: &Value) {
        for item in list["items"].as_array().expect("a list has items") {
            self.table(kind).insert(item);
        }
        self.version = self.version.max(version(list));
    }

    /// Lets a recorded event happen, with its own version.
    pub(super) fn replay(&mut self, kind: Kind, event: Value) {
        let object = &event["object"];
        let version = version(object);
        self.version = self.version.max(version);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                self.table(kind).insert(object);
            }
            Some("DELETED") => {
                self.table(kind).remove(&key(object));
            }
            _ => {}
        }
        self.table(kind).log.push(StoredChange { version, event });
    }

    /// The object with a key, as a watch shows it.
    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<Value> {
        let mut object = self.tables[kind as usize].objects.get(key).cloned()?;
        add_type(kind, &mut object);
        Some(object)
    }

    /// The keys of all objects of a kind.
    pub(super) fn keys(&self, kind: Kind) -> Vec<String> {
        self.tables[kind as usize].objects.keys().cloned().collect()
    }

    pub(super) fn put(&mut self, kind: Kind, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let known = self.table(kind).objects.contains_key(&key(&object));
        let word = if known { "MODIFIED" } else { "ADDED" };
        self.replay(kind, json!({"type": word, "object": object}));
    }

    #[track_caller]
    pub(super) fn delete(&mut self, kind: Kind, name: &str) {
        self.version += 1;
        let version = self.version;
        let mut object = self.table(kind).remove(name).expect("the object exists");
        object["metadata"]["resourceVersion"] = version.to_string().into();
        add_type(kind, &mut object);
        let event = json!({"type": "DELETED", "object": object});
        self.table(kind).log.push(StoredChange { version, event });
    }

    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.tables.iter_mut().for_each(|table| table.log.clear());
    }

    pub(super) fn is_expired(&self, version: u64) -> bool {
        version < self.oldest
    }

    /// Objects after `start`, which is empty or the `next` of another page.
    pub(super) fn page(&self, kind: Kind, start: &str, limit: Option<usize>) -> Page {
        let objects = &self.tables[kind as usize].objects;
        let mut rest = objects.iter().filter(|(key, _)| start.is_empty() || key.as_str() > start);
        let chosen: Vec<_> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
        let more = rest.next().is_some();
        Page {
            next: chosen.last().filter(|_| more).map(|(key, _)| (*key).clone()),
            items: chosen.into_iter().map(|(_, object)| object.clone()).collect(),
        }
    }

    /// The selected objects as ADDED events.
    pub(super) fn initial_events(
        &self,
        kind: Kind,
        selects: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let event = |object: &Value| {
            let mut object = object.clone();
            add_type(kind, &mut object);
            json!({"type": "ADDED", "object": object})
        };
        let objects = self.tables[kind as usize].objects.values();
        objects.filter(|object| selects(object)).map(event).collect()
    }

    /// All objects as the chunks of an answer.
    pub(super) fn initial_chunks(&mut self, kind: Kind, form: Form) -> Arc<[u8]> {
        if let Some(chunks) = &self.table(kind).chunks[form as usize] {
            return Arc::clone(chunks);
        }
        let mut chunks = Vec::new();
        let events = self.initial_events(kind, |_| true);
        events.iter().for_each(|event| append_chunk(&mut chunks, &form.event(event)));
        let chunks: Arc<[u8]> = chunks.into();
        self.table(kind).chunks[form as usize] = Some(Arc::clone(&chunks));
        chunks
    }

    /// The changes after a version.
    pub(super) fn events_after(&self, kind: Kind, version: u64) -> Vec<Value> {
        let log = &self.tables[kind as usize].log;
        log.iter().filter(|change| change.version > version).map(|c| c.event.clone()).collect()
    }

    fn table(&mut self, kind: Kind) -> &mut Table {
        &mut self.tables[kind as usize]
    }
}

impl Table {
    fn insert(&mut self, object: &Value) {
        let key = key(object);
        self.chunks = [None, None];
        self.objects.insert(key, object.clone());
    }

    fn remove(&mut self, key: &str) -> Option<Value> {
        self.chunks = [None, None];
        self.objects.remove(key)
    }
}

/// Items of a list have no `kind`, objects of a watch do.
fn add_type(kind: Kind, object: &mut Value) {
    object["kind"] = kind.name().into();
    object["apiVersion"] = kind.api_version().into();
}

fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().expect("an object has a name");
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().expect("it has a version");
    version.parse().expect("versions are numbers")
}
