//! The background check on the real kernel. Changes without a notice go through the daemon's own
//! socket: the kernel allows them to the owner of the tables and announces them to no other socket.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // One of them measures.

#[path = "../../tests/checking/mod.rs"]
mod checking;
#[path = "../../tests/tables/mod.rs"]
mod tables;
#[path = "../../tests/world/mod.rs"]
mod world;

use std::thread;
use std::time::Duration;

use checking::play;
use nft::kernel::Nftables;
use nix::sched::{CloneFlags, unshare};
use world::real::open;

/// Plays a test in a namespace of its own.
fn play_in_namespace<F: Future<Output = ()> + 'static>(test: fn(Nftables) -> F) {
    let in_namespace = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect(
            "run as root, or: sh netlink-tests/in-namespaces cargo test --offline --workspace \
             --no-default-features --test background_check_kernel",
        );
        play(test(open()));
    };
    thread::spawn(in_namespace).join().unwrap();
}

#[test]
fn each_lost_element_is_written_again() {
    play_in_namespace(checking::each_lost_element_is_written_again);
}

#[test]
fn each_changed_element_is_written_again() {
    play_in_namespace(checking::each_changed_element_is_written_again);
}

#[test]
fn elements_of_nothing_are_deleted() {
    play_in_namespace(checking::elements_of_nothing_are_deleted);
}

#[test]
fn rules_that_are_lost_are_written_again() {
    play_in_namespace(checking::rules_that_are_lost_are_written_again);
}

#[test]
fn an_emptied_set_is_written_again() {
    play_in_namespace(checking::an_emptied_set_is_written_again);
}

#[test]
fn nothing_is_found_beside_continuous_changes() {
    play_in_namespace(checking::nothing_is_found_beside_continuous_changes);
}

#[test]
fn changes_are_committed_during_the_check() {
    play_in_namespace(checking::urgent::changes_are_committed_during_the_check);
}

#[test]
fn rules_are_compared_first() {
    play_in_namespace(checking::urgent::rules_are_compared_first);
}

#[test]
fn very_many_deleted_elements_are_written_again() {
    play_in_namespace(checking::urgent::very_many_deleted_elements_are_written_again);
}

#[test]
fn very_many_added_elements_are_deleted() {
    play_in_namespace(checking::urgent::very_many_added_elements_are_deleted);
}

#[test]
fn a_deleted_table_is_read_and_written_at_once() {
    play_in_namespace(checking::urgent::a_deleted_table_is_read_and_written_at_once);
}

#[test]
fn a_round_ends_beside_continuous_changes() {
    play_in_namespace(checking::urgent::a_round_ends_beside_continuous_changes);
}

/// The whole check in one thread, the kernel's part included.
#[test]
#[ignore = "measures: run with --release --ignored --nocapture"]
fn a_round_takes_a_small_part_of_a_processor() {
    play_in_namespace(|kernel| async {
        let mut times = checking::times_of_a_round(kernel, 50_000).await;
        times.sort_unstable();
        let sum: Duration = times.iter().sum();
        // Most polls find nothing due.
        times.retain(|time| *time > Duration::from_micros(15));
        println!(
            "a round: {} pieces, {sum:?}, {:.3} % of 600 s",
            times.len(),
            sum.as_secs_f64() / 6.0
        );
        let at = |percent| times[(times.len() - 1) * percent / 100];
        println!("a piece: p50 {:?}, p99 {:?}, longest {:?}", at(50), at(99), at(100));
        assert!(sum < Duration::from_secs(60), "{sum:?}");
    });
}
