//! The program under test in this process, on the kernel of the node's namespace.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use conntrack::ConntrackTable;
use daemon::converge::commit_all;
use daemon::read_back::read_back;
use daemon::source::Wanted;
use daemon::source::addresses::local_addresses;
use daemon::source::files::ManifestReader;
use engine::flow::StaleFlow;
use engine::routing::{LocalDetection, Routing};
use engine::{Engine, GRACE, Kept, KnownElements};
use nft::kernel::{Committed, Nftables};
use nft::{MessageKind, TableFlags, Transaction};

use super::hosts::NODE_NAME;
use super::object::{Object, Raw};
use test_hosts::Deadline;
use test_hosts::Host;

/// An engine, the manifests that it follows and the kernel that it programs.
#[derive(Debug)]
pub struct Proxy {
    engine: Engine,
    reader: ManifestReader,
    kernel: Nftables,
    /// `None` leaves stale flows as they are.
    conntrack: Option<ConntrackTable>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Whether the tables have been read.
    observed: bool,
    /// The unused elements that are released next, and when.
    unused: Option<(Deadline, Kept)>,
}

/// The result of one change.
#[derive(Debug, Default)]
pub struct Sent {
    /// The committed transactions, in order.
    pub transactions: Vec<Transaction>,
    /// Messages by kind, of all of them.
    pub messages: BTreeMap<MessageKind, usize>,
    /// The objects, or parts of them, that were left out.
    pub problems: Vec<String>,
    /// UDP flows whose conntrack entries were deleted after it.
    pub stale_flows: Vec<StaleFlow>,
}

/// The usual settings: pods have 10.244.0.0/16 and fd00:10:244::/48.
///
/// # Panics
/// Never.
#[must_use]
pub fn routing() -> Routing {
    let cluster_cidrs = "10.244.0.0/16,fd00:10:244::/48".parse().expect("ranges");
    let local_detection = LocalDetection::ClusterCidr(cluster_cidrs);
    Routing { local_detection, ..Routing::default() }
}

impl Proxy {
    /// Starts with no objects on whatever the node's tables hold.
    ///
    /// # Panics
    /// When the kernel's tables cannot be used.
    #[must_use]
    #[track_caller]
    pub fn start(node: &Host, routing: Routing) -> Self {
        let kernel = node.run(Nftables::open).expect("nftables");
        let reader = ManifestReader::of(Wanted::new(NODE_NAME, &routing));
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.suit_kernel(kernel.release());
        let mut proxy = Self {
            engine,
            reader,
            kernel,
            conntrack: Some(node.run(ConntrackTable::open).expect("a conntrack socket")),
            files: BTreeMap::new(),
            observed: false,
            unused: None,
        };
        proxy.engine.set_local_addresses(interface_addresses(node));
        proxy
    }

    /// Takes in the addresses that the node's interfaces have now, and commits.
    #[track_caller]
    pub fn look_at_addresses(&mut self, node: &Host) -> Sent {
        self.engine.set_local_addresses(interface_addresses(node));
        self.commit()
    }

    /// From now on stale UDP flows stay.
    pub fn leave_flows(&mut self) {
        self.conntrack = None;
    }

    /// From now on what packets under way may look up stays a while, as in the daemon. Deleted with
    /// a later change.
    pub fn keep_unused_elements(&mut self) {
        self.engine.keep_unused_elements();
    }

    /// Makes objects so, and commits.
    #[track_caller]
    pub fn apply(&mut self, objects: &[&dyn Object]) -> Sent {
        self.change(&[], objects)
    }

    /// Removes objects, and commits.
    #[track_caller]
    pub fn remove(&mut self, objects: &[&dyn Object]) -> Sent {
        self.change(objects, &[])
    }

    /// Removes some objects, sets others, and commits all of it together.
    #[track_caller]
    pub fn change(&mut self, gone: &[&dyn Object], objects: &[&dyn Object]) -> Sent {
        for object in gone.iter().flat_map(|object| object.documents()) {
            let removed = self.files.remove(&file_of(&object));
            assert!(removed.is_some(), "{} was not there", file_of(&object).display());
        }
        for object in objects.iter().flat_map(|object| object.documents()) {
            self.files.insert(file_of(&object), object.to_string().into_bytes());
        }
        self.follow()
    }

    /// All objects that it received.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn objects(&self) -> Vec<Raw> {
        let parse = |bytes: &Vec<u8>| serde_json::from_slice(bytes).expect("it was made of JSON");
        self.files.values().map(|bytes| Raw(parse(bytes))).collect()
    }

    /// The elements of a table that the engine knows.
    #[must_use]
    pub fn known_elements(&self, family: nft::Family) -> Option<KnownElements> {
        self.engine.known_elements(family)
    }

    /// Reads the tables and commits the differences.
    ///
    /// # Panics
    /// When the kernel cannot be read or refuses a transaction.
    #[track_caller]
    pub fn resync(&mut self) -> Sent {
        let found =
            read_back(&mut self.kernel, self.engine.tables().layouts()).expect("readable tables");
        self.engine.replace_installed_state(found);
        self.observed = true;
        self.commit()
    }

    /// The generation of the node's ruleset.
    ///
    /// # Panics
    /// When the kernel does not report it.
    #[track_caller]
    pub fn generation(&mut self) -> u32 {
        self.kernel.generation().expect("a generation").0
    }

    /// Applies the present manifests.
    #[track_caller]
    fn follow(&mut self) -> Sent {
        let files = self.files.iter().map(|(path, bytes)| (path.clone(), Ok(bytes.clone())));
        let update = self.reader.update(files);
        self.engine.apply(update.events);
        let mut sent = if self.observed { self.commit() } else { self.resync() };
        sent.problems.extend(update.problems.iter().map(ToString::to_string));
        sent
    }

    #[track_caller]
    fn commit(&mut self) -> Sent {
        if let Some((_, kept)) = self.unused.take_if(|(due, _)| due.left().is_none()) {
            self.engine.release(kept);
        }
        let mut sent = Sent::default();
        let mut add = |transaction: &Transaction, committed: &Committed| {
            sent.add(transaction.clone(), committed);
        };
        let refused = commit_all(&mut self.engine, &mut self.kernel, &mut add);
        assert!(matches!(refused, Ok(None)), "the kernel refused: {refused:?}");
        if self.unused.is_none() {
            let kept = self.engine.kept_unused_elements();
            self.unused = kept.map(|kept| (Deadline::after(GRACE), kept));
        }
        sent.stale_flows = self.engine.take_stale_flows();
        let stale = sent.stale_flows.iter().copied().collect();
        if let Some(conntrack) = &mut self.conntrack {
            conntrack.delete(&stale).expect("the kernel deletes conntrack entries");
        }
        let problems = self.engine.take_problems();
        sent.problems.extend(problems.iter().map(ToString::to_string));
        sent
    }
}

impl Sent {
    fn add(&mut self, transaction: Transaction, committed: &Committed) {
        self.transactions.push(transaction);
        for (kind, count) in &committed.messages {
            *self.messages.entry(*kind).or_default() += count;
        }
    }

    /// The transactions as scripts for `nft -f`.
    #[must_use]
    pub fn script(&self) -> String {
        self.transactions.iter().map(ToString::to_string).collect()
    }
}

#[track_caller]
fn interface_addresses(node: &Host) -> Vec<IpAddr> {
    node.run(local_addresses).expect("interface addresses")
}

fn file_of(object: &serde_json::Value) -> PathBuf {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}-{}.json", text(&object["kind"]), text(&object["metadata"]["name"])).into()
}
