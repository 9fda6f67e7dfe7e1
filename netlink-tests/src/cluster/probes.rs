//! Connections of clients to the service, each from a port of its own.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use test_hosts::{Answer, CLIENT, Connection, NODES, Tracked, TrackedFlows};

use super::nodes::Cluster;
use super::objects::ADDRESS;
use crate::scenario::{Family, Protocol};

/// A connection of a client, and the server that answered.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The service's address and port.
    pub to: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The server.
    pub server: String,
    /// The client's address as the server saw it.
    pub source: SocketAddr,
}

impl Cluster {
    /// An address and port that no connection has had.
    ///
    /// # Panics
    /// When there is none left.
    #[must_use]
    pub fn next_client(&self, family: Family) -> SocketAddr {
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        assert!(port > 1024, "the clients have run out of ports");
        SocketAddr::new(family.of(CLIENT.parse().expect("an address")), port)
    }

    /// Opens a connection to `web` by a protocol and asks once.
    ///
    /// # Panics
    /// When no server answers.
    #[must_use]
    #[track_caller]
    pub fn ask(&self, protocol: Protocol, family: Family) -> Seen {
        let (client, to) = (self.next_client(family), service(family));
        let answer = self.ask_from(client, protocol);
        let Answer::From { server, seen } = answer else {
            panic!("{protocol:?} from {client} to {to}: {answer:?}")
        };
        Seen { client, to, protocol, server, source: seen }
    }

    /// Sends one packet to `web` from a client, or opens a connection, and hears the answer.
    #[must_use]
    #[track_caller]
    pub fn ask_from(&self, client: SocketAddr, protocol: Protocol) -> Answer {
        let to = service(Family::of_address(client.ip()));
        let clients = self.link.clients();
        match protocol {
            Protocol::Tcp => clients.connect_tcp_from(client, to),
            Protocol::Udp => clients.send_udp_from(client, to),
            Protocol::Sctp => clients.send_sctp_from(client.port(), to),
        }
    }

    /// Opens connections of TCP to `web`, that stay open.
    ///
    /// # Panics
    /// When one is refused.
    #[must_use]
    #[track_caller]
    pub fn open(&self, count: usize, family: Family) -> Vec<Connection> {
        let open = |_| {
            let client = self.next_client(family);
            let opened = self.link.clients().open_tcp_from(client, service(family));
            opened.unwrap_or_else(|answer| panic!("TCP from {client}: {answer:?}"))
        };
        (0..count).map(open).collect()
    }

    /// Returns whether a node tracks a connection.
    #[must_use]
    pub fn tracks(&self, place: usize, seen: &Seen) -> bool {
        let protocol = match seen.protocol {
            Protocol::Tcp => libc::IPPROTO_TCP,
            Protocol::Udp => libc::IPPROTO_UDP,
            Protocol::Sctp => libc::IPPROTO_SCTP,
        };
        let protocol = u8::try_from(protocol).expect("a small number");
        // Answers do not matter for the lookup.
        let entry = Tracked { protocol, sent_to: seen.to, answered_by: seen.to };
        self.node(place).run(|| TrackedFlows::open().contains(seen.client, &entry))
    }
}

impl Seen {
    /// The place of the server's node.
    ///
    /// # Panics
    /// When no node has such a server.
    #[must_use]
    pub fn place(&self) -> usize {
        place_of(&self.server)
    }
}

/// The place of the node of a server, such as `a1`.
///
/// # Panics
/// When no node has such a server.
#[must_use]
#[track_caller]
pub fn place_of(server: &str) -> usize {
    let letter = server.get(..1).unwrap_or_default();
    let place = NODES.iter().position(|node| node.ends_with(letter));
    place.unwrap_or_else(|| panic!("no node has {server}"))
}

/// The address and port of `web`.
#[must_use]
pub fn service(family: Family) -> SocketAddr {
    SocketAddr::new(family.of(ADDRESS.parse().expect("an address")), 80)
}
