//! One network namespace, kept alive by an open file.
//!
//! The namespace ends when this file and all sockets and processes inside are gone, so nothing stays
//! behind after a panic.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::panic;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A new network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes an empty namespace; not even `lo` is up.
    ///
    /// # Panics
    /// Without the permission to create namespaces; the message has the remedy.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        let file = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok::<_, nix::Error>(File::open("/proc/thread-self/ns/net").expect("/proc is mounted"))
        });
        match file.join().expect("the thread only makes a namespace") {
            Ok(file) => Self { file },
            Err(errno) => panic!("cannot make a network namespace ({errno}). {HOW_TO_RUN}"),
        }
    }

    /// The open file that is this namespace.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Runs `work` on a thread inside this namespace. Its panic becomes the caller's. If the
    /// calling thread is inside already, it runs `work` itself.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let here = Some(self.file.as_raw_fd());
        if INSIDE.get() == here {
            return work();
        }
        let inside = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET).expect("this process made the namespace");
            INSIDE.set(here);
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// Writes a sysctl of this namespace; `name` as under `/proc/sys/net`.
    ///
    /// # Panics
    /// When the kernel refuses it.
    #[track_caller]
    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        let written = self.run(|| fs::write(&path, value));
        written.unwrap_or_else(|error| panic!("{path} = {value}: {error}. {HOW_TO_RUN}"));
    }

    /// Writes several sysctls of this namespace and passes over those that this kernel lacks.
    pub(crate) fn sysctls_if_present(&self, settings: &[(&str, &str)]) {
        self.run(|| {
            for (name, value) in settings {
                // Some of these became part of the namespace only lately; the tests run without.
                let _ = fs::write(format!("/proc/sys/net/{name}"), value);
            }
        });
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

thread_local! {
    /// The file of the namespace that [`Namespace::run`] took this thread into. The number stays
    /// valid: `run` borrows the namespace while the thread is inside.
    static INSIDE: Cell<Option<RawFd>> = const { Cell::new(None) };
}

const HOW_TO_RUN: &str = "Run as root, or: sh netlink-tests/in-namespaces cargo test --offline \
     --workspace --no-default-features --test NAME";
