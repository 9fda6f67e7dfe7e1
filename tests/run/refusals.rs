//! Tables and services that the kernel refuses.

use std::sync::atomic::Ordering;

use engine::ruleset::{SetId, table};
use fake_kernel::Fake;
use nft::Errno;
use nft::kernel::CommitError;
use nft::{Family, Operation, TableFamily, Transaction};

use crate::kernel::{Objection, Shared};
use crate::objects::{dual_stack, frontends, many_services, service, small_batches, without_ipv4};
use crate::running::{Daemon, syncs, wait_for};
use crate::tables::{elements, owning_engine};

#[test]
fn a_table_that_another_program_owns_keeps_nothing_from_the_other_one() {
    let kernel = Shared::new(Fake::new());
    kernel.owners.lock().unwrap().insert(table(Family::Ip6), 77);
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [1, 0]);
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [2, 0]);
    let has = |line: &str| daemon.observe.metrics_text().contains(line);
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv4\"} 1"));
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv6\"} 0"));
    kernel.owners.lock().unwrap().clear();
    wait_for(|| frontends(&kernel) == [2, 2]);
    wait_for(|| has("deltaproxy_programmed{ip_family=\"IPv6\"} 1"));
    daemon.wait();
    daemon.end();
}

#[test]
fn a_table_whose_rules_are_refused_keeps_nothing_from_the_other_one() {
    let kernel = Shared::new(Fake::new());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let rule = transaction.operations.iter().position(
            |it| matches!(it, Operation::AddRule(table, _) if table.family == TableFamily::Ip),
        )?;
        Some(CommitError::refused(transaction, Some((rule, None)), Errno::EOPNOTSUPP))
    });
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [0, 1]);
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [0, 2]);
    *kernel.objection.lock().unwrap() = None;
    daemon.wait();
    daemon.end();
}

#[test]
fn a_service_for_which_the_kernel_refuses_whole_transactions_is_found_and_left_out() {
    let kernel = Shared::new(small_batches());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_bad = transaction.operations.iter().any(|it| it.to_string().contains("10.96.0.77 "));
        is_bad.then(|| CommitError::refused(transaction, None, Errno::EINVAL))
    });
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(many_services());
    wait_for(|| frontends(&kernel) == [199, 0]);
    let problem = daemon.problem();
    assert_eq!(problem.object.name.as_str(), "default/service77");
    daemon.send(service(3, 2));
    wait_for(|| {
        let slots = kernel.with(|kernel| elements(kernel, Family::Ip, SetId::Endpoints).len());
        slots == 198 * 9 + 2
    });
    *kernel.objection.lock().unwrap() = None;
    daemon.wait();
    daemon.end();
}

fn names_service_77(operation: &Operation) -> bool {
    operation.to_string().contains("10.96.0.77 ")
}

/// The service is the last one, so no later commit confirms that it is the cause.
#[test]
fn a_refused_service_is_reported_and_retried_without_a_dump() {
    let unnamed: Objection = |transaction| {
        let is_bad = transaction.operations.iter().any(names_service_77);
        is_bad.then(|| CommitError::refused(transaction, None, Errno::EINVAL))
    };
    let named: Objection = |transaction| {
        let operation = transaction.operations.iter().position(names_service_77)?;
        let mut elements = transaction.operations[operation].elements()?.iter();
        let place =
            (operation, elements.position(|it| it.key.as_bytes().starts_with(&[10, 96, 0, 77])));
        Some(CommitError::refused(transaction, Some(place), Errno::EINVAL))
    };
    for objection in [unnamed, named] {
        let kernel = Shared::new(Fake::new());
        let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
        daemon.list(service(1, 1));
        daemon.wait();
        // The kernel's answer was handled too: the first sync is over.
        wait_for(|| syncs(&daemon, "full") == 1.0);
        *kernel.objection.lock().unwrap() = Some(objection);
        let dumps = || kernel.calls.dumps.load(Ordering::Relaxed);
        let before = dumps();
        daemon.send([service(1, 3), service(77, 1)].concat());
        let problem = daemon.problem();
        assert_eq!(problem.object.name.as_str(), "default/service77");
        *kernel.objection.lock().unwrap() = None;
        daemon.send(service(77, 2));
        daemon.wait();
        assert_eq!(dumps(), before);
        daemon.end();
    }
}

/// Refusals from which on a first bisection of four services is over, in any order.
const MORE_THAN_A_BISECTION: usize = 12;

/// Refuses a transaction until one has all of these services, or none because they are in the
/// kernel. A bisection goes on, since it would blame a service if the refusals ended within it.
fn refuse_unless(transaction: &Transaction, numbers: [u8; 4]) -> Option<CommitError> {
    let text = transaction.to_string();
    let count = numbers.iter().filter(|it| text.contains(&format!("10.96.0.{it} "))).count();
    let is_part = (1..numbers.len()).contains(&count);
    is_part.then(|| CommitError::refused(transaction, None, Errno::EPERM))
}

#[test]
fn a_kernel_that_refuses_everything_is_asked_again_and_no_service_is_left_out() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(service(1, 1));
    daemon.wait();
    *kernel.objection.lock().unwrap() =
        Some(|transaction| Some(CommitError::refused(transaction, None, Errno::EPERM)));
    daemon.send((2..6).flat_map(|number| service(number, 2)).collect());
    wait_for(|| kernel.calls.refusals.load(Ordering::Relaxed) > MORE_THAN_A_BISECTION);
    let text = daemon.observe.metrics_text();
    assert!(text.contains("deltaproxy_programmed{ip_family=\"IPv4\"} 0"), "{text}");
    assert!(daemon.notices.try_recv().is_err());
    *kernel.objection.lock().unwrap() =
        Some(|transaction| refuse_unless(transaction, [2, 3, 4, 5]));
    daemon.wait();
    assert!(daemon.notices.try_recv().is_err());
    daemon.end();
}

#[test]
fn a_table_that_refuses_everything_is_blocked_while_the_other_takes_services() {
    let kernel = Shared::new(Fake::new());
    let mut daemon = Daemon::start_unlisted(owning_engine(), kernel.clone());
    daemon.list(Vec::new());
    daemon.wait();
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_refused = transaction.family() == Some(Family::Ip);
        is_refused.then(|| CommitError::refused(transaction, None, Errno::EPERM))
    });
    let only_ipv6 = |number| dual_stack(number).into_iter().map(without_ipv4).collect();
    let mixed = (1..9).flat_map(|number| match number % 2 {
        0 => service(number, 1),
        _ => only_ipv6(number),
    });
    daemon.send(mixed.collect());
    for number in 0..20 {
        wait_for(|| frontends(&kernel) == [0, 4 + number]);
        daemon.send(only_ipv6(21 + u8::try_from(number).unwrap()));
    }
    let text = daemon.observe.metrics_text();
    assert!(text.contains("deltaproxy_programmed{ip_family=\"IPv4\"} 0"), "{text}");
    assert!(daemon.notices.try_recv().is_err());
    *kernel.objection.lock().unwrap() = Some(|transaction| {
        let is_refused = transaction.family() == Some(Family::Ip);
        refuse_unless(transaction, [2, 4, 6, 8]).filter(|_| is_refused)
    });
    daemon.wait();
    assert!(daemon.notices.try_recv().is_err());
    daemon.end();
}
