//! The simulation of the daemon's loop on the real kernel, each sequence in a new namespace.
//!
//! `SIMULATION_SEED` plays one sequence and `SIMULATION_SEQUENCES` so many, as on the fake kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

#[path = "../../tests/tables/mod.rs"]
mod tables;
#[path = "../../tests/world/mod.rs"]
mod world;

use std::thread;

use netlink_tests::kernel_has_flowtables;
use nft::kernel::Release;
use nix::sched::{CloneFlags, unshare};
use world::play;
use world::real::open;
use world::seeds::{Seeds, run_seed};
use world::steps::{Options, Sequence};

#[test]
fn after_any_faults_the_tables_of_the_real_kernel_are_as_desired() {
    let seeds = Seeds::chosen(200);
    for seed in seeds.first..seeds.end {
        let in_namespace = move || {
            run_seed("simulation_kernel", seed, |sequence| {
                unshare(CloneFlags::CLONE_NEWNET).expect(
                    "run as root, or: sh netlink-tests/in-namespaces cargo test --offline \
                     --workspace --no-default-features --test simulation_kernel",
                );
                let kernel = open();
                // Older ones refuse devices that do not exist, and some lack flowtables.
                let has_names = kernel.release().is_some_and(|it| it >= Release::DEVICE_NAMES);
                let flowtable = sequence.options.flowtable && has_names && kernel_has_flowtables();
                let options = Options { flowtable, ..sequence.options };
                play(kernel, &Sequence { options, ..sequence.clone() })
            });
        };
        thread::spawn(in_namespace).join().unwrap();
    }
}
