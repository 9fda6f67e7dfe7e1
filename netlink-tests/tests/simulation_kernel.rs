//! The simulation of the daemon's loop on the real kernel, each sequence in a namespace of its own.
//!
//! `SIMULATION_SEED` plays one sequence and `SIMULATION_SEQUENCES` so many, as on the fake kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

#[path = "../../tests/tables/mod.rs"]
mod tables;
#[path = "../../tests/world/mod.rs"]
mod world;

use std::thread;

use deltaproxy::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, Nftables, ReadError,
};
use deltaproxy::nft::{ElementView, TableRef, Transaction, Value};
use nix::sched::{CloneFlags, unshare};
use world::kernel::Shared;
use world::play;
use world::seeds::{Seeds, run_seed};

/// The kernel of a namespace, by the daemon's socket and by that of another program.
struct Real {
    ours: Nftables,
    theirs: Nftables,
}

impl Real {
    fn open() -> Self {
        let open = || Nftables::open().expect("a namespace of our own");
        Self { ours: open(), theirs: open() }
    }
}

impl Shared for Real {
    fn commit_by_another(&mut self, transaction: &Transaction) {
        let _ = self.theirs.commit(transaction);
    }

    fn reopen(&mut self) {
        self.ours = Nftables::open().expect("a namespace of our own");
    }
}

impl Kernel for Real {
    fn max_batch(&self) -> usize {
        self.ours.max_batch()
    }

    fn port(&self) -> u32 {
        self.ours.port()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        self.ours.commit(transaction)
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.ours.watch_others(tables)
    }

    fn ignore_others(&mut self) {
        self.ours.ignore_others();
    }

    fn tampered(&mut self) -> bool {
        self.ours.tampered()
    }

    fn owner(&mut self, table: &TableRef) -> Result<Option<u32>, ReadError> {
        self.ours.owner(table)
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.ours.read_table(table)
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        self.ours.read_elements(table, set, each)
    }

    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        self.ours.count_elements(table, set)
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.ours.find_elements(table, set, keys, each)
    }
}

#[test]
fn whatever_goes_wrong_the_tables_of_the_real_kernel_end_right() {
    let seeds = Seeds::chosen(200);
    for seed in seeds.first..seeds.end {
        let in_namespace = move || {
            run_seed("simulation_kernel", seed, |sequence| {
                unshare(CloneFlags::CLONE_NEWNET)
                    .expect("run as root, or: unshare -rn cargo test -p netlink-tests");
                play(Real::open(), sequence)
            });
        };
        thread::spawn(in_namespace).join().unwrap();
    }
}
