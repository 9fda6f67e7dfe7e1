//! How the servers share the open files of the process.
//!
//! The daemon's own files have the first share, so that neither clients nor health check ports keep
//! it from commits, reads of the tables and the API server.

/// What the servers may have open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// Connections of one group of clients, see [`super::connections`].
    pub(super) connections: usize,
    /// Sockets that listen for health checks.
    pub(super) health_check_sockets: usize,
}

impl Shares {
    /// Divides a limit of open files.
    pub(super) fn of(limit: u64) -> Self {
        let servers = limit.saturating_sub(OWN_FILES);
        let connections = (servers / 2 / GROUPS).clamp(1, MAX_CONNECTIONS);
        let sockets = servers.saturating_sub(connections * GROUPS);
        let number = |count| usize::try_from(count).unwrap_or(usize::MAX);
        Self { connections: number(connections), health_check_sockets: number(sockets) }
    }
}

/// Open files of the daemon itself. At rest it has 18 with manifests: the runtime, netlink sockets,
/// watched folders, standard streams and two servers. An API server adds a connection for each
/// watch. Reads of the tables, new connections to the API server, its files, and connections of
/// clients that are being closed come and go.
const OWN_FILES: u64 = 40;

/// Two groups in each of three servers: health, metrics, and all health check ports.
const GROUPS: u64 = 6;

/// Most connections of one group: probes of the kubelet, or of all load balancers.
const MAX_CONNECTIONS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_stay_within_the_limit() {
        for (limit, connections, health_check_sockets) in [
            (0, 1, 0),
            (46, 1, 0),
            (64, 2, 12),
            (1024, 82, 492),
            (4096, 256, 2_520),
            (1_048_576, 256, 1_047_000),
        ] {
            let expected = Shares { connections, health_check_sockets };
            assert_eq!(Shares::of(limit), expected, "{limit}");
        }
    }
}
