//! Node settings outside the tables: limits and timeouts of conntrack (as in
//! `cmd/kube-proxy/app/conntrack.go`), routing of loopback addresses, and the OOM score of this
//! process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::config::ConntrackSettings;

/// A sysctl that could not be set to its value.
#[derive(Debug, thiserror::Error)]
#[error("{} stays as it is, expected {value}: {source}", path.display())]
pub struct SysctlError {
    path: PathBuf,
    value: u64,
    source: io::Error,
}

/// Advice to the administrator when the rule that makes [`route_localnet`] safe is removed.
pub const UNGUARDED: &str = "packets of other hosts to 127.0.0.0/8 are no longer dropped; set \
                             net.ipv4.conf.all.route_localnet to 0, unless another program needs 1";

/// The kernel has not loaded nf_conntrack, so it has none of the sysctls to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLoaded;

/// Sets the conntrack sysctls of this network namespace that differ from `settings`. Returns those
/// that could not be set.
///
/// # Errors
/// [`NotLoaded`] if something is to be set and the kernel has no sysctl of conntrack yet.
pub fn set_conntrack(settings: &ConntrackSettings) -> Result<Vec<SysctlError>, NotLoaded> {
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    set_if_loaded(Path::new("/"), settings, processors)
}

/// Checks, without changing anything, that loopback addresses of IPv4 are routed or that
/// [`route_localnet`] can enable it.
///
/// # Errors
/// The sysctl is 0 and cannot be written, as on a read-only `/proc/sys`.
pub fn can_route_localnet() -> Result<(), SysctlError> {
    can_set(Path::new(ROUTE_LOCALNET), 1)
}

/// Makes the kernel route packets from and to IPv4 loopback addresses on every interface of this
/// network namespace. A rule must already drop packets of other hosts to these addresses.
///
/// # Errors
/// The sysctl cannot be written.
pub fn route_localnet() -> Result<(), SysctlError> {
    set(Path::new(ROUTE_LOCALNET), 1).map(drop)
}

/// Sets `/proc/self/oom_score_adj`, -1000 to 1000. Lowering it needs CAP_SYS_RESOURCE.
///
/// # Errors
/// The error of the write.
pub fn set_oom_score_adj(score: i16) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", score.to_string())
}

fn set_if_loaded(
    root: &Path,
    settings: &ConntrackSettings,
    processors: u64,
) -> Result<Vec<SysctlError>, NotLoaded> {
    let errors = set_below(root, settings, processors);
    if errors.is_empty() || root.join(format!("{SYSCTLS}_max")).exists() {
        Ok(errors)
    } else {
        Err(NotLoaded)
    }
}

fn set_below(root: &Path, settings: &ConntrackSettings, processors: u64) -> Vec<SysctlError> {
    let mut errors = Vec::new();
    let mut set = |path: String, value| match set(&root.join(path), value) {
        Ok(is_new) => is_new,
        Err(error) => {
            errors.push(error);
            false
        }
    };
    let limit = format!("{SYSCTLS}_max");
    // A larger limit stays, as in kube-proxy (kubernetes/kubernetes#142035): a container may be
    // unable to write it, and a smaller one would refuse connections.
    if let Some(entries) = max_entries(settings, processors)
        && !read(&root.join(&limit)).is_ok_and(|found| found >= entries)
        && set(limit, entries)
    {
        let buckets = entries / ENTRIES_OF_A_BUCKET;
        // A larger table is left as it is: it does no harm.
        if read(&root.join(BUCKETS)).is_ok_and(|found| found < buckets) {
            set(BUCKETS.to_owned(), buckets);
        }
    }
    for (name, timeout) in [
        ("tcp_timeout_established", settings.tcp_established_timeout),
        ("tcp_timeout_close_wait", settings.tcp_close_wait_timeout),
        ("udp_timeout", settings.udp_timeout),
        ("udp_timeout_stream", settings.udp_stream_timeout),
    ] {
        if timeout > Duration::ZERO {
            set(format!("{SYSCTLS}_{name}"), timeout.as_secs());
        }
    }
    // As in kube-proxy, false leaves the sysctl unchanged.
    if settings.tcp_be_liberal {
        set(format!("{SYSCTLS}_tcp_be_liberal"), 1);
    }
    errors
}

/// Returns the limit of entries: `max_per_core` for each processor, at least `min`, at most
/// [`MOST_ENTRIES`]. `None` leaves the limit unchanged.
fn max_entries(settings: &ConntrackSettings, processors: u64) -> Option<u64> {
    let scaled = u64::from(settings.max_per_core) * processors;
    match scaled {
        0 => None,
        _ if scaled > MOST_ENTRIES => Some(MOST_ENTRIES),
        _ => Some(scaled.max(settings.min.into())),
    }
}

/// Checks that the file has `value` already or can be opened for writing.
fn can_set(path: &Path, value: u64) -> Result<(), SysctlError> {
    let failed = |source| SysctlError { path: path.to_owned(), value, source };
    if read(path).map_err(failed)? == value {
        return Ok(());
    }
    fs::OpenOptions::new().write(true).open(path).map(drop).map_err(failed)
}

/// Writes `value` unless the file has it already. Returns whether it wrote.
fn set(path: &Path, value: u64) -> Result<bool, SysctlError> {
    let failed = |source| SysctlError { path: path.to_owned(), value, source };
    if read(path).map_err(failed)? == value {
        return Ok(false);
    }
    fs::write(path, value.to_string()).map_err(failed)?;
    Ok(true)
}

fn read(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
const SYSCTLS: &str = "proc/sys/net/netfilter/nf_conntrack";
const BUCKETS: &str = "sys/module/nf_conntrack/parameters/hashsize";
const ENTRIES_OF_A_BUCKET: u64 = 4;
const MOST_ENTRIES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A directory with a copy of the kernel's files.
    struct Root(TempDir);

    impl Root {
        fn new() -> Self {
            let root = Self(tempfile::tempdir().unwrap());
            for (file, value) in [
                ("max", 65_536),
                ("tcp_timeout_established", 432_000),
                ("tcp_timeout_close_wait", 60),
                ("tcp_be_liberal", 0),
                ("udp_timeout", 30),
                ("udp_timeout_stream", 120),
            ] {
                root.write(&format!("{SYSCTLS}_{file}"), value);
            }
            root.write(BUCKETS, 16_384);
            root
        }

        fn write(&self, path: &str, value: u64) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }

        fn sysctl(&self, name: &str) -> u64 {
            read(&self.0.path().join(format!("{SYSCTLS}_{name}"))).unwrap()
        }

        fn buckets(&self) -> u64 {
            read(&self.0.path().join(BUCKETS)).unwrap()
        }
    }

    #[test]
    fn the_defaults_of_kube_proxy_are_set() {
        let root = Root::new();
        let errors = set_below(root.0.path(), &ConntrackSettings::of_kube_proxy(), 2);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!((root.sysctl("max"), root.buckets()), (131_072, 32_768));
        assert_eq!(root.sysctl("tcp_timeout_established"), 86_400);
        assert_eq!(root.sysctl("tcp_timeout_close_wait"), 3_600);
        assert_eq!(root.sysctl("tcp_be_liberal"), 0);
        assert_eq!((root.sysctl("udp_timeout"), root.sysctl("udp_timeout_stream")), (30, 120));
    }

    #[test]
    fn a_limit_of_conntrack_that_is_larger_than_computed_stays() {
        let root = Root::new();
        root.write(&format!("{SYSCTLS}_max"), 1_000_000);
        let limit = root.0.path().join(format!("{SYSCTLS}_max"));
        let written = || fs::metadata(&limit).unwrap().modified().unwrap();
        let before = written();
        let errors = set_below(root.0.path(), &ConntrackSettings::of_kube_proxy(), 2);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!((root.sysctl("max"), root.buckets()), (1_000_000, 16_384));
        assert_eq!(written(), before, "nothing is written, as /proc/sys may be read-only");
        assert_eq!(root.sysctl("tcp_timeout_established"), 86_400, "the others are set");
    }

    #[test]
    fn zero_leaves_a_sysctl_unchanged() {
        let root = Root::new();
        assert!(set_below(root.0.path(), &ConntrackSettings::default(), 2).is_empty());
        assert_eq!((root.sysctl("max"), root.sysctl("tcp_timeout_established")), (65_536, 432_000));
        let settings = ConntrackSettings {
            udp_timeout: Duration::from_secs(10),
            udp_stream_timeout: Duration::from_secs(20),
            tcp_be_liberal: true,
            ..ConntrackSettings::default()
        };
        assert!(set_below(root.0.path(), &settings, 2).is_empty());
        assert_eq!((root.sysctl("udp_timeout"), root.sysctl("udp_timeout_stream")), (10, 20));
        assert_eq!(root.sysctl("tcp_be_liberal"), 1);
    }

    #[test]
    fn the_limit_scales_with_the_processors_between_two_bounds() {
        let settings = |max_per_core, min| ConntrackSettings {
            max_per_core,
            min,
            ..ConntrackSettings::default()
        };
        assert_eq!(max_entries(&settings(0, 9), 4), None);
        assert_eq!(max_entries(&settings(32_768, 131_072), 2), Some(131_072));
        assert_eq!(max_entries(&settings(32_768, 131_072), 8), Some(262_144));
        assert_eq!(max_entries(&settings(32_768, 2_000_000), 64), Some(1_048_576));
    }

    #[test]
    fn a_missing_sysctl_is_an_error_and_the_others_are_set() {
        let root = Root::new();
        fs::remove_file(root.0.path().join(format!("{SYSCTLS}_tcp_timeout_close_wait"))).unwrap();
        let settings = ConntrackSettings::of_kube_proxy();
        let errors = set_if_loaded(root.0.path(), &settings, 2).unwrap();
        let [error] = &errors[..] else { panic!("{errors:?}") };
        let error = error.to_string();
        assert!(error.contains("close_wait stays as it is, expected 3600"), "{error}");
        assert_eq!((root.sysctl("max"), root.buckets()), (131_072, 32_768));
        assert_eq!(root.sysctl("tcp_timeout_established"), 86_400);
    }

    #[test]
    fn before_the_kernel_loads_conntrack_its_settings_wait_if_there_are_any() {
        let root = tempfile::tempdir().unwrap();
        let set = |settings| set_if_loaded(root.path(), &settings, 2).map(|errors| errors.len());
        assert_eq!(set(ConntrackSettings::of_kube_proxy()), Err(NotLoaded));
        assert_eq!(set(ConntrackSettings::default()), Ok(0), "nothing is to be set");
        let nowhere = root.path().join("proc");
        assert!(!nowhere.exists(), "no file is created");
    }

    #[test]
    fn a_sysctl_can_be_set_if_it_has_the_value_or_its_file_is_writable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("route_localnet");
        let absent = can_set(&path, 1).unwrap_err().to_string();
        assert!(absent.contains("route_localnet stays as it is, expected 1"), "{absent}");
        fs::write(&path, "0\n").unwrap();
        can_set(&path, 1).unwrap();
        assert_eq!(read(&path).unwrap(), 0);
        assert!(set(&path, 1).unwrap());
        assert!(!set(&path, 1).unwrap());
        can_set(&path, 1).unwrap();
    }
}
