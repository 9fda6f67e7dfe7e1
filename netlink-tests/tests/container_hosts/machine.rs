//! A host whose root file system are the packages of Debian, with processes of its own.

use std::path::PathBuf;
use std::time::Duration;

use netlink_tests::{Finished, Host, Process, deltaproxy_binary, eventually, in_user_namespace};
use tempfile::TempDir;

/// How long a condition may take, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The folder with the files of the packages, beside the programs under test.
#[track_caller]
pub(crate) fn packages() -> PathBuf {
    assert!(!in_user_namespace(), "container engines need root");
    let programs = deltaproxy_binary();
    let target = programs.ancestors().nth(2).expect("it is in target/debug");
    let root = target.join("neighbours/root");
    assert!(root.is_dir(), "no {}: make test-neighbours", root.display());
    root
}

/// Namespaces of mounts and processes beside the network namespace of a host. When this is dropped,
/// the kernel ends all that runs inside.
#[derive(Debug)]
pub(crate) struct Machine {
    host: Host,
    /// Its end is that of the first process inside.
    _unshare: Process,
    /// The first process inside, as seen from here.
    pid: String,
    _folder: TempDir,
}

impl Machine {
    #[track_caller]
    pub(crate) fn start(host: &Host, root: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = include_str!("machine.sh");
        let namespaces = ["--mount", "--pid", "--uts", "--cgroup", "--fork", "--kill-child"];
        let start = ["sh", "-c", script, "machine", root, folder.path().to_str().unwrap()];
        let mut unshare = host.spawn("unshare", &[&namespaces[..], &start].concat());
        let line = unshare.wait_for_line("machine ", SOON);
        let pid = line.trim_start_matches("machine ").to_owned();
        Self { host: host.clone(), _unshare: unshare, pid, _folder: folder }
    }

    /// Runs a shell script inside to its end.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Finished {
        self.spawn(script).finish(2 * SOON)
    }

    /// The same; returns what it printed.
    #[track_caller]
    pub(crate) fn ok(&self, script: &str) -> String {
        let finished = self.run(script);
        assert_eq!(finished.code(), Some(0), "{script}\n{}{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    #[track_caller]
    fn spawn(&self, script: &str) -> Process {
        let inside = ["--target", &self.pid, "--mount", "--pid", "--uts", "--cgroup", "--root"];
        let start = ["--wdns=/", "env", "PATH=/usr/sbin:/usr/bin", "LC_ALL=C", "sh", "-c", script];
        self.host.spawn("nsenter", &[&inside[..], &start].concat())
    }

    /// Starts a daemon that stays in the foreground.
    #[track_caller]
    pub(crate) fn daemon(&self, name: &'static str, command: &str) -> Daemon {
        let process = self.spawn(&format!("echo $$ >/run/{name}.test; exec {command}"));
        eventually("the number of a process", SOON, || {
            self.run(&format!("cat /run/{name}.test")).stdout.trim().parse::<u32>().ok()
        });
        Daemon { name, process }
    }

    /// The rules of other programs than ours, without counters.
    #[track_caller]
    pub(crate) fn rules(&self) -> String {
        self.ok("nft -s list tables | while read -r _ family name; do \
                 case $name in *kube-proxy | deltaproxy*) continue ;; esac; nft -s list table $family $name; done")
    }
}

/// A daemon inside.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: &'static str,
    process: Process,
}

impl Daemon {
    #[track_caller]
    pub(crate) fn signal(&self, machine: &Machine, signal: &str) {
        let _ = machine.ok(&format!("kill -{signal} $(cat /run/{}.test)", self.name));
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub(crate) fn end(self, machine: &Machine, signal: &str) {
        self.signal(machine, signal);
        let _ = machine.ok(&format!("rm /run/{}.test", self.name));
        let _ = self.process.finish(SOON);
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
