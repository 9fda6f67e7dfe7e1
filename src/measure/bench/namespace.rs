//! A private network namespace of the process.
//!
//! Without the right to create one, the process first becomes root of a user namespace, if
//! unprivileged users may create these. The namespace ends with the process.

use std::fs::{self, File};
use std::io;
use std::panic::resume_unwind;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};

/// Error of creating a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// Neither root nor allowed to create a user namespace.
    #[error(
        "cannot make a network namespace ({0}): run it as root, or allow user namespaces (sysctl \
         user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0), or use \
         --in-place in a namespace that you may change"
    )]
    Refused(Errno),
    /// The user namespace was created but could not be set up.
    #[error("cannot become root of a user namespace: {path}: {source}")]
    Map {
        /// The file.
        path: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// Moves the process into a new network namespace. The process must have a single thread.
///
/// # Errors
/// See [`NamespaceError`].
pub fn enter_own() -> Result<(), NamespaceError> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Err(Errno::EPERM) => enter_as_user(),
        made => made.map_err(NamespaceError::Refused),
    }
}

/// A second network namespace, which ends with this value.
#[derive(Debug)]
pub(super) struct Beside(File);

impl Beside {
    /// Creates an empty namespace; not even `lo` is up.
    ///
    /// # Errors
    /// [`NamespaceError::Refused`].
    pub(super) fn new() -> Result<Self, NamespaceError> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net").map_err(|_| Errno::ENOENT)
        });
        let made = made.join().unwrap_or_else(|panic| resume_unwind(panic));
        made.map(Self).map_err(NamespaceError::Refused)
    }

    /// Runs `work` on a thread in the namespace.
    ///
    /// # Errors
    /// [`NamespaceError::Refused`].
    pub(super) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, NamespaceError> {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        let done = thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| resume_unwind(panic)).map_err(NamespaceError::Refused)
    }
}

fn enter_as_user() -> Result<(), NamespaceError> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(NamespaceError::Refused)?;
    // The kernel requires this before an unprivileged process maps a group.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write("/proc/self/gid_map", &format!("0 {group} 1"))
}

fn write(path: &'static str, text: &str) -> Result<(), NamespaceError> {
    fs::write(path, text).map_err(|source| NamespaceError::Map { path, source })
}
