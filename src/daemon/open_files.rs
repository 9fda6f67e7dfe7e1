//! The limit of open files of this process (`RLIMIT_NOFILE`), which counts sockets too.
//!
//! A login sets a soft limit of 1024 for programs that use select(2). Nothing here uses it, so the
//! soft limit may always be the hard one.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as Go programs do when they start, and returns it.
///
/// # Errors
/// Errors of the system, such as a filter of system calls.
pub fn raise() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft != hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Returns the soft limit; 0 if the system does not return it.
pub fn soft_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let hard = raise().unwrap();
        assert_eq!(soft_limit(), hard);
    }
}
