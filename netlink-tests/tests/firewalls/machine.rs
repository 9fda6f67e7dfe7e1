//! A mount namespace for programs with fixed paths: /run is empty, and what they write to /etc and
//! /var is gone at its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netlink_tests::{Finished, Host, Process};

/// Limit of a wait, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Ends a loop of another thread, also when the test fails.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends as a process that keeps the namespace.
const SETUP: &str = "set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
for folder in etc var; do
    mkdir -p /run/upper/$folder /run/work/$folder
    mount -t overlay overlay \
        -o lowerdir=/$folder,upperdir=/run/upper/$folder,workdir=/run/work/$folder /$folder
done
mkdir /run/dbus /run/firewalld /run/fail2ban
echo ready
exec sleep infinity";

/// Programs that run in the node's network namespace and in one mount namespace.
pub(crate) struct Machine {
    node: Host,
    keeper: Process,
}

impl Machine {
    #[track_caller]
    pub(crate) fn new(node: &Host) -> Self {
        let mut keeper = node.spawn("unshare", &["--mount", "sh", "-c", SETUP]);
        keeper.wait_for_line("ready", SOON);
        Self { node: node.clone(), keeper }
    }

    /// Starts a command, which is split at spaces. Its process ends with what this returns.
    #[track_caller]
    pub(crate) fn spawn(&self, command: &str) -> Process {
        self.enter(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn output(&self, command: &str) -> Finished {
        self.spawn(command).finish(SOON)
    }

    /// The output of a command that succeeds.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> String {
        self.output(command).ok()
    }

    /// Runs lines of a shell; all of them succeed.
    #[track_caller]
    pub(crate) fn shell(&self, lines: &str) -> String {
        self.enter(&["sh", "-ec", lines]).finish(SOON).ok()
    }

    #[track_caller]
    fn enter(&self, command: &[&str]) -> Process {
        let pid = self.keeper.pid().to_string();
        let enter = ["--target", &pid, "--mount", "--"];
        self.node.spawn("nsenter", &[&enter[..], command].concat())
    }
}
