//! The fake kernel that a daemon and its test share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::ruleset::base::has_guard;
use engine::ruleset::table;
use fake_kernel::Fake;
use nft::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, OthersChanges, ReadError,
};
use nft::{ElementView, Family, TableRef, Transaction, Value};

/// A fake kernel that the test sees too.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) kernel: Arc<Mutex<Fake>>,
    /// What another program commits before our next transaction.
    pub(super) overtaking: Arc<Mutex<Option<Transaction>>>,
    /// What the kernel refuses besides.
    pub(super) objection: Arc<Mutex<Option<Objection>>>,
    pub(super) calls: Arc<Calls>,
    /// Netlink ports of other programs that own our tables.
    pub(super) owners: Arc<Mutex<HashMap<TableRef, u32>>>,
    /// Lookups by keys wait.
    pub(super) holds_lookups: Arc<AtomicBool>,
    /// Lookups so far, and their number at each commit.
    pub(super) lookups: Arc<Mutex<(usize, Vec<usize>)>>,
}

/// How often the kernel was asked.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) reads: AtomicUsize,
    pub(super) looks_for_others: AtomicUsize,
    pub(super) dumps: AtomicUsize,
    /// Transactions that met the objection.
    pub(super) refusals: AtomicUsize,
}

pub(super) type Objection = fn(&Transaction) -> Option<CommitError>;

impl Shared {
    pub(super) fn new(kernel: Fake) -> Self {
        Self {
            kernel: Arc::new(Mutex::new(kernel)),
            overtaking: Arc::default(),
            objection: Arc::default(),
            owners: Arc::default(),
            calls: Arc::default(),
            holds_lookups: Arc::default(),
            lookups: Arc::default(),
        }
    }

    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Fake) -> T) -> T {
        read(&mut self.kernel.lock().unwrap())
    }

    /// Whether both tables are there.
    pub(super) fn has_tables(&self) -> bool {
        self.with(|kernel| {
            let mut families = nft::family::Family::ALL.into_iter();
            families.all(|family| {
                let table = engine::ruleset::table(family);
                kernel.read_table(&table).unwrap().is_some()
            })
        })
    }

    /// Whether packets of other hosts to loopback addresses are dropped.
    pub(super) fn is_guarded(&self) -> bool {
        let contents = self.with(|kernel| kernel.read_table(&table(Family::Ip)).unwrap());
        contents.is_some_and(|contents| has_guard(&contents.rules))
    }
}

impl Kernel for Shared {
    fn max_batch(&self) -> usize {
        self.with(|kernel| kernel.max_batch())
    }

    fn port(&self) -> u32 {
        self.with(|kernel| kernel.port())
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        if let Some(others) = self.overtaking.lock().unwrap().take() {
            self.with(|kernel| kernel.tamper(&others).unwrap());
        }
        let objection = *self.objection.lock().unwrap();
        if let Some(error) = objection.and_then(|objection| objection(transaction)) {
            self.calls.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        for operation in &transaction.operations {
            let table = operation.table();
            if let Some(&port) = self.owners.lock().unwrap().get(&table) {
                return Err(CommitError::Owned { table, port });
            }
        }
        let lookups = &mut *self.lookups.lock().unwrap();
        lookups.1.push(lookups.0);
        self.with(|kernel| kernel.commit(transaction))
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.with(|kernel| kernel.watch_others(tables))
    }

    fn ignore_others(&mut self) {
        self.with(Kernel::ignore_others);
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.calls.looks_for_others.fetch_add(1, Ordering::Relaxed);
        self.with(Kernel::others_changes)
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.calls.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.with(|kernel| kernel.read_table(table))?;
        let owner = self.owners.lock().unwrap().get(table).copied();
        Ok(found.map(|found| Contents { owner: owner.or(found.owner), ..found }))
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        self.calls.dumps.fetch_add(1, Ordering::Relaxed);
        self.with(|kernel| kernel.read_elements(table, set, each))
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        while self.holds_lookups.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lookups.lock().unwrap().0 += 1;
        self.with(|kernel| kernel.find_elements(table, set, keys, each))
    }
}
