//! How much the proxy may have open at once.

/// Most relays and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyLimits {
    /// The limit of open files of the process.
    pub(super) open_files: u64,
    pub(super) listeners: usize,
    /// Relays of all ports.
    pub(super) relays: usize,
    /// Relays of one port, so that one service cannot use up all of them.
    pub(super) of_port: usize,
}

impl ProxyLimits {
    /// Divides the proxy's `share` of a limit of open files. A relay has two sockets.
    pub(super) fn of(open_files: u64, share: usize) -> Self {
        let relays = (share / 4).clamp(1, MOST_RELAYS);
        let listeners = share.saturating_sub(2 * relays);
        Self { open_files, listeners, relays, of_port: (relays / 4).max(1) }
    }
}

/// Most relays, if there are enough open files: 16 MiB of buffers.
const MOST_RELAYS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_stay_within_the_share() {
        for (share, listeners, relays, of_port) in
            [(0, 0, 1, 1), (6, 4, 1, 1), (246, 124, 61, 15), (500_000, 497_952, 1024, 256)]
        {
            let expected = ProxyLimits { open_files: 9, listeners, relays, of_port };
            assert_eq!(ProxyLimits::of(9, share), expected, "{share}");
        }
    }
}
