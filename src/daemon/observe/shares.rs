//! How the servers share the open files of the process.
//!
//! The daemon's own files have the first share, so that neither clients nor ports of services keep
//! it from commits, reads of the tables and the API server.

/// What the servers may have open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The limit of open files that is shared.
    pub open_files: u64,
    /// Connections of one group of clients, see [`super::connections`].
    pub(super) connections: usize,
    /// Sockets that listen for health checks.
    pub(super) health_check_sockets: usize,
    /// Sockets of the proxy for node ports at `[::1]`.
    pub localhost: usize,
}

impl Shares {
    /// Divides a limit of open files.
    pub fn of(open_files: u64) -> Self {
        let servers = open_files.saturating_sub(OWN_FILES);
        let connections = (servers / 2 / GROUPS).clamp(1, MAX_CONNECTIONS);
        let sockets = servers.saturating_sub(connections * GROUPS);
        let number = |count| usize::try_from(count).unwrap_or(usize::MAX);
        let (connections, health_check_sockets) = (number(connections), number(sockets));
        Self { open_files, connections, health_check_sockets, localhost: 0 }
    }

    /// The same, with a share for the proxy at `[::1]`: half of that of health checks.
    pub fn with_localhost(open_files: u64) -> Self {
        let shares = Self::of(open_files);
        let localhost = shares.health_check_sockets / 2;
        let health_check_sockets = shares.health_check_sockets - localhost;
        Self { localhost, health_check_sockets, ..shares }
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
        for (open_files, connections, health_check_sockets, localhost) in [
            (0, 1, 0, 0),
            (46, 1, 0, 0),
            (64, 2, 12, 6),
            (1024, 82, 492, 246),
            (4096, 256, 2_520, 1_260),
            (1_048_576, 256, 1_047_000, 523_500),
        ] {
            let without = Shares { open_files, connections, health_check_sockets, localhost: 0 };
            assert_eq!(Shares::of(open_files), without, "{open_files}");
            let health_check_sockets = health_check_sockets - localhost;
            let with = Shares { health_check_sockets, localhost, ..without };
            assert_eq!(Shares::with_localhost(open_files), with, "{open_files}");
        }
    }
}
