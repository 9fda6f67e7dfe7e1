//! Changes while the ownership of the tables is being taken.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemon::handover::{HandoverError, Replace, Step};
use daemon::run::{Handovers, shared_steps};
use daemon::writer::Writer;
use fake_kernel::Fake;
use nft::kernel::{CommitError, Committed, Kernel};
use nft::{Errno, TableFlags, Transaction};

use crate::kernel::{Objection, Shared};
use crate::objects::{dual_stack, frontends};
use crate::running::{Daemon, LIMIT, wait_for};
use crate::tables::{engine, owning_engine};

type Hold = Arc<dyn Fn(&'static str) + Send + Sync>;

/// The steps of a replacement that still follow.
struct HeldSteps(std::vec::IntoIter<(&'static str, Step)>, Hold);

impl Replace<Shared> for HeldSteps {
    fn step(&mut self, _: &mut Shared) -> Result<Step, HandoverError> {
        let (name, step) = self.0.next().unwrap();
        (self.1)(name);
        Ok(step)
    }

    fn commit(&mut self, shared: &mut Shared, tx: &Transaction) -> Result<Committed, CommitError> {
        shared.commit(tx)
    }
}

/// Handovers whose parts begin with a message and end when the test allows it.
struct HeldHandovers {
    began: std::sync::mpsc::Receiver<&'static str>,
    allow: std::sync::mpsc::Sender<()>,
}

impl HeldHandovers {
    fn new() -> (Self, Handovers<Shared>) {
        let (tell, began) = std::sync::mpsc::channel();
        let (allow, allowed) = std::sync::mpsc::channel();
        let allowed = Arc::new(Mutex::new(allowed));
        let hold: Hold = Arc::new(move |part| {
            tell.send(part).unwrap();
            let _ = allowed.lock().unwrap().recv_timeout(LIMIT);
        });
        let list = move |_: &mut Shared, _, _, is_interrupted: &dyn Fn() -> bool| {
            hold("list");
            if is_interrupted() {
                return Err(HandoverError::Interrupted);
            }
            let steps = vec![
                ("copy", Step::Copied),
                ("serve", Step::Serving),
                ("replace", Step::Serving),
                ("end", Step::Done),
            ];
            let steps = HeldSteps(steps.into_iter(), Arc::clone(&hold));
            Ok(Some(shared_steps(steps)))
        };
        let flags = TableFlags { owner: true, persist: true };
        let hand_over = Arc::new(|_: &mut Shared, _, _: &dyn Fn() -> bool| Ok(Vec::new()));
        let mut handovers = Handovers::with(flags, Arc::new(list), hand_over);
        handovers.idle = Duration::from_millis(1);
        handovers.pause = Duration::from_millis(1);
        (Self { began, allow }, handovers)
    }

    /// Waits for the beginning of a part.
    #[track_caller]
    fn expect(&self, part: &str) {
        assert_eq!(self.began.recv_timeout(LIMIT), Ok(part));
    }

    fn allow(&self) {
        self.allow.send(()).unwrap();
    }

    #[track_caller]
    fn pass(&self, parts: &[&str]) {
        for part in parts {
            self.expect(part);
            self.allow();
        }
    }
}

#[test]
fn changes_are_committed_while_the_ownership_is_being_taken() {
    let kernel = Shared::new(Fake::new());
    let mut before = Daemon::start_unlisted(engine(), kernel.clone());
    before.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [1, 1]);
    before.end();
    let (held, handovers) = HeldHandovers::new();
    let reader = kernel.clone();
    let mut daemon = Daemon::start_changed(owning_engine(), kernel.clone(), |parts| {
        parts.handovers = Some(handovers);
        parts.open_reader = Some(Box::new(move || Writer::spawn(reader.clone()).ok()));
    });
    daemon.list(dual_stack(1));

    // A commit does not wait for the list, and ends the attempt.
    held.expect("list");
    daemon.send(dual_stack(2));
    wait_for(|| frontends(&kernel) == [2, 2]);
    held.allow();

    // A commit between two steps ends the attempt as long as nothing has changed.
    held.pass(&["list"]);
    held.expect("copy");
    daemon.send(dual_stack(3));
    held.allow();
    held.expect("list");
    assert_eq!(frontends(&kernel), [3, 3]);
    held.allow();

    // Later the steps go on after a commit.
    held.pass(&["copy"]);
    for (number, part) in [(4, "serve"), (5, "replace")] {
        held.expect(part);
        assert_eq!(frontends(&kernel), [number - 1; 2]);
        daemon.send(dual_stack(u8::try_from(number).unwrap()));
        held.allow();
    }
    held.expect("end");
    assert_eq!(frontends(&kernel), [5, 5]);
    held.allow();
    // The other table.
    held.pass(&["list", "copy", "serve", "replace", "end"]);
    daemon.send(dual_stack(6));
    wait_for(|| frontends(&kernel) == [6, 6]);
    daemon.end();
}

#[test]
fn the_end_completes_an_attempt_whose_handover_table_may_serve() {
    for (held_at, follow) in [("copy", &[][..]), ("serve", &["replace", "end"])] {
        let kernel = Shared::new(Fake::new());
        let mut before = Daemon::start_unlisted(engine(), kernel.clone());
        before.list(dual_stack(1));
        wait_for(|| frontends(&kernel) == [1, 1]);
        before.end();
        let (held, handovers) = HeldHandovers::new();
        let mut daemon = Daemon::start_changed(owning_engine(), kernel, |parts| {
            parts.handovers = Some(handovers);
        });
        daemon.list(dual_stack(1));
        let all = ["list", "copy", "serve"];
        let earlier = all.iter().position(|part| *part == held_at).unwrap();
        held.pass(&all[..earlier]);
        held.expect(held_at);
        let end = std::thread::spawn(|| daemon.end());
        // The end begins while the step is in the kernel.
        std::thread::sleep(Duration::from_millis(50));
        held.allow();
        held.pass(follow);
        end.join().unwrap();
        assert!(held.began.try_recv().is_err());
    }
}

/// Nothing reads a table that is being replaced.
#[test]
fn a_change_that_the_handover_table_refuses_is_looked_up_after_the_replacement() {
    let kernel = Shared::new(Fake::new());
    let mut before = Daemon::start_unlisted(engine(), kernel.clone());
    before.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [1, 1]);
    before.end();
    let (held, handovers) = HeldHandovers::new();
    let mut daemon = Daemon::start_changed(owning_engine(), kernel.clone(), |parts| {
        parts.handovers = Some(handovers);
    });
    daemon.list(dual_stack(1));
    held.pass(&["list", "copy"]);
    held.expect("serve");
    let refuse: Objection =
        |transaction| Some(CommitError::refused(transaction, Some((0, None)), Errno::EINVAL));
    *kernel.objection.lock().unwrap() = Some(refuse);
    let reads = || {
        let (reads, dumps) = (&kernel.calls.reads, &kernel.calls.dumps);
        let lookups = kernel.lookups.lock().unwrap().0;
        (reads.load(Ordering::Relaxed), dumps.load(Ordering::Relaxed), lookups)
    };
    let so_far = reads();
    daemon.send(dual_stack(2));
    held.allow();
    held.expect("replace");
    assert_eq!(kernel.calls.refusals.load(Ordering::Relaxed), 1);
    *kernel.objection.lock().unwrap() = None;
    // The steps follow at once, whatever else is due.
    held.allow();
    held.expect("end");
    assert_eq!(reads(), so_far);
    held.allow();
    wait_for(|| frontends(&kernel) == [2, 2]);
    assert!(reads() > so_far);
    // The other table.
    held.pass(&["list", "copy", "serve", "replace", "end"]);
    daemon.end();
}
