//! The background check on the fake kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]
#![allow(clippy::disallowed_methods)] // The kernel is measured by the same module.

mod checking;
mod tables;
mod world;

use std::time::Duration;

use checking::{Checked, objects, play};
use fake_kernel::Fake;

#[test]
fn each_lost_element_is_written_again_and_nothing_else_is() {
    play(checking::each_lost_element_is_written_again(Fake::new()));
}

#[test]
fn each_changed_element_is_written_again() {
    play(checking::each_changed_element_is_written_again(Fake::new()));
}

#[test]
fn elements_of_nothing_are_deleted() {
    play(checking::elements_of_nothing_are_deleted(Fake::new()));
}

#[test]
fn rules_that_are_lost_are_written_again() {
    play(checking::rules_that_are_lost_are_written_again(Fake::new()));
}

#[test]
fn an_emptied_set_is_written_again() {
    play(checking::an_emptied_set_is_written_again(Fake::new()));
}

#[test]
fn nothing_is_found_beside_continuous_changes() {
    play(checking::nothing_is_found_beside_continuous_changes(Fake::new()));
}

#[test]
fn changes_are_committed_during_the_check() {
    play(checking::urgent::changes_are_committed_during_the_check(Fake::new()));
}

#[test]
fn rules_are_compared_first() {
    play(checking::urgent::rules_are_compared_first(Fake::new()));
}

#[test]
fn very_many_deleted_elements_are_written_again() {
    play(checking::urgent::very_many_deleted_elements_are_written_again(Fake::new()));
}

#[test]
fn very_many_added_elements_are_deleted() {
    play(checking::urgent::very_many_added_elements_are_deleted(Fake::new()));
}

#[test]
fn a_deleted_table_is_read_and_written_at_once() {
    play(checking::urgent::a_deleted_table_is_read_and_written_at_once(Fake::new()));
}

#[test]
fn a_round_ends_beside_continuous_changes() {
    play(checking::urgent::a_round_ends_beside_continuous_changes(Fake::new()));
}

#[test]
fn added_elements_are_found_without_sizes_of_sets() {
    let mut kernel = Fake::new();
    kernel.hide_sizes();
    play(checking::urgent::very_many_added_elements_are_deleted(kernel));
}

#[test]
fn without_a_period_nothing_is_checked() {
    play(async {
        let mut daemon = Checked::start_every(Duration::ZERO, Fake::new(), objects()).await;
        daemon.pass(Duration::from_secs(60)).await;
        assert_eq!(daemon.metric("deltaproxy_check_services_total"), 0);
    });
}
