//! Connections of a server. Above a limit the oldest is aborted: probes are answered at once, so an
//! old connection is an idle one.

use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::task::AbortHandle;

use super::shares::Shares;

/// Connections of one group of clients, oldest first.
type Group = VecDeque<(IpAddr, AbortHandle)>;

/// All connections. Those of clients on this node, such as the kubelet, have a limit of their own,
/// so that other clients cannot displace them.
#[derive(Debug)]
pub(super) struct Connections {
    own: Group,
    others: Group,
    /// Most connections of one group.
    limit: usize,
}

/// Most connections of one client address. A load balancer probes each service separately.
const MAX_OF_CLIENT: usize = 32;

impl Connections {
    /// No connections yet, and the share of a process with this limit of open files.
    pub(super) fn within(open_files: u64) -> Self {
        let limit = Shares::of(open_files).connections;
        Self { own: Group::default(), others: Group::default(), limit }
    }

    /// Adds a connection of `client`, and aborts the oldest ones above the limits.
    pub(super) fn add(&mut self, client: IpAddr, is_own: bool, connection: AbortHandle) {
        let group = if is_own { &mut self.own } else { &mut self.others };
        group.retain(|(_, connection)| !connection.is_finished());
        let of_client = group.iter().filter(|(address, _)| *address == client).count();
        let oldest = if of_client >= MAX_OF_CLIENT.min(self.limit) {
            group.iter().position(|(address, _)| *address == client)
        } else {
            (group.len() >= self.limit).then_some(0)
        };
        if let Some((_, connection)) = oldest.and_then(|oldest| group.remove(oldest)) {
            connection.abort();
        }
        group.push_back((client, connection));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// A limit of open files that restricts no connection.
    const AMPLE: u64 = 1 << 20;

    /// Returns the number of remaining connections of each client after they arrived in this order.
    async fn left(open_files: u64, clients: impl Iterator<Item = (u8, bool)>) -> Vec<(u8, usize)> {
        let (mut connections, mut tasks) = (Connections::within(open_files), Vec::new());
        for (client, is_own) in clients {
            let task = tokio::spawn(pending::<()>());
            connections.add(IpAddr::from([10, 0, 0, client]), is_own, task.abort_handle());
            tasks.push((client, task));
        }
        // The runtime runs some 60 tasks at a time.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let mut counts = std::collections::BTreeMap::<u8, usize>::new();
        for (client, _) in tasks.iter().filter(|(_, task)| !task.is_finished()) {
            *counts.entry(*client).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    #[tokio::test]
    async fn one_client_cannot_end_connections_of_others() {
        let flood = (0..600).map(|_| (1, false));
        let found = left(AMPLE, [(2, false), (3, true)].into_iter().chain(flood)).await;
        assert_eq!(found, [(1, MAX_OF_CLIENT), (2, 1), (3, 1)]);
    }

    #[tokio::test]
    async fn many_clients_cannot_end_connections_of_this_node() {
        let flood = (0..600).map(|number| (u8::try_from(number % 200).unwrap(), false));
        let found = left(AMPLE, [(250, true)].into_iter().chain(flood)).await;
        assert_eq!(found.last(), Some(&(250, 1)));
        assert_eq!(found.iter().map(|(_, count)| count).sum::<usize>(), 256 + 1);
    }

    #[tokio::test]
    async fn few_open_files_leave_few_connections() {
        let flood = (0..40).map(|number| (number % 20, false));
        let found = left(64, [(250, true)].into_iter().chain(flood)).await;
        assert_eq!(found, [(18, 1), (19, 1), (250, 1)]);
    }
}
