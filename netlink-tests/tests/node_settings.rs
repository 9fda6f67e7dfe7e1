//! Settings of the node on a kernel that has not loaded conntrack yet.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Command;

use conntrack::ConntrackTable;
use netlink_tests::{Namespace, deltaproxy_binary};

const ESTABLISHED: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";

/// `--init-only` commits no rules, which would load the module later.
///
/// Kernels with conntrack built in, and those on which a program has loaded it, always have the
/// sysctls, so that only the request is tested there. This is the first of KERNEL_TESTS, because
/// other tests load the module.
#[test]
fn the_module_of_conntrack_is_loaded_before_its_sysctls_are_set() {
    if Path::new(ESTABLISHED).exists() {
        Namespace::new().run(|| ConntrackTable::load().unwrap());
        eprintln!("left out: this kernel has conntrack already; make test-kernel boots another");
        return;
    }
    Namespace::new().run(|| {
        let mut program = Command::new(deltaproxy_binary());
        let output = program.args(["--init-only", "--hostname-override=n"]).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        assert!(!log.contains("has no nf_conntrack yet"), "{log}");
        assert_eq!(fs::read_to_string(ESTABLISHED).expect("it is loaded").trim(), "86400", "{log}");
    });
}
