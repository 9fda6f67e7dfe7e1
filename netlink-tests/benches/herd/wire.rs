//! The loopback device of this network namespace: its bytes, and the ports of its connections.

use std::fs;

/// Counters of the loopback device.
pub(crate) struct Wire {
    /// Bytes of both directions, with headers.
    pub(crate) bytes: u64,
}

impl Wire {
    /// Reads the counters.
    pub(crate) fn now() -> Self {
        let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let loopback = devices.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
        let bytes = loopback.split_whitespace().next().unwrap().parse().unwrap();
        Self { bytes }
    }
}

/// Lets clients use all ports: connections that were just closed still occupy some.
pub(crate) fn use_all_ports() {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    if let Err(error) = fs::write(path, "1024 65535") {
        println!("{path} stays as it is: {error}");
    }
}
