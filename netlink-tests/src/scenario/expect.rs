//! The expected outcome of a row and the probes that check it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::lab::{World, is_on_node};
use test_hosts::Answer;
use test_hosts::NODE_IP;

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Family {
    Ipv4,
    Ipv6,
}

/// The probes of a row.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Protocols.
    pub protocols: &'static [Protocol],
    /// Families.
    pub families: &'static [Family],
}

impl Protocol {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Its name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

impl Scope {
    /// Every protocol in both families.
    pub const ALL: Self = Self { protocols: &Protocol::ALL, families: &Family::ALL };
    /// IPv4 alone.
    pub const IPV4: Self = Self { families: &[Family::Ipv4], ..Self::ALL };
    /// IPv6 alone.
    pub const IPV6: Self = Self { families: &[Family::Ipv6], ..Self::ALL };
    /// TCP alone.
    pub const TCP: Self = Self { protocols: &[Protocol::Tcp], ..Self::ALL };
    /// UDP alone.
    pub const UDP: Self = Self { protocols: &[Protocol::Udp], ..Self::ALL };
    /// SCTP alone.
    pub const SCTP: Self = Self { protocols: &[Protocol::Sctp], ..Self::ALL };
}

/// The expected outcome for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Each of these servers answers some of the connections, and no other server does.
    Answers {
        /// The servers' names.
        servers: BTreeSet<String>,
        /// The servers see the node's address instead of the client's.
        masqueraded: bool,
    },
    /// Every connection is refused at once.
    Refused,
    /// Silence.
    Silent,
    /// The packets come to a host that does not serve them. For SCTP that is silence or "protocol
    /// unreachable", because the kernel may lack it.
    Closed,
}

/// These servers (names between spaces) answer and see the client's own address.
#[must_use]
pub fn keeps_source(servers: &str) -> Expect {
    answers(servers, false)
}

/// These servers (names between spaces) answer and see the node's address.
#[must_use]
pub fn masquerades(servers: &str) -> Expect {
    answers(servers, true)
}

fn answers(servers: &str, masqueraded: bool) -> Expect {
    Expect::Answers {
        servers: servers.split_whitespace().map(str::to_owned).collect(),
        masqueraded,
    }
}

/// One row in one family and protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) world: &'a World,
    pub(crate) client: &'a str,
    pub(crate) to: SocketAddr,
    pub(crate) protocol: Protocol,
}

impl Probe<'_> {
    /// The differences from the expectation.
    pub(crate) fn check(self, expect: &Expect) -> Result<(), String> {
        let outcome = match expect {
            Expect::Answers { servers, masqueraded } => self.check_answers(servers, *masqueraded),
            Expect::Refused => self.check_all(&Answer::Refused, REFUSALS),
            Expect::Silent => self.check_all(&Answer::Silent, 1),
            Expect::Closed => self.check_closed(),
        };
        outcome.map_err(|what| {
            format!("{} -> {} {}: {what}", self.client, self.to, self.protocol.name())
        })
    }

    fn check_all(self, expected: &Answer, times: usize) -> Result<(), String> {
        for _ in 0..times {
            let answer = if *expected == Answer::Silent { self.ask_hastily() } else { self.ask() };
            if answer != *expected {
                return Err(format!("expected {expected:?}, got {answer:?}"));
            }
        }
        Ok(())
    }

    fn check_closed(self) -> Result<(), String> {
        let answer = if self.protocol == Protocol::Sctp { self.ask_hastily() } else { self.ask() };
        match (self.protocol, answer) {
            (Protocol::Tcp | Protocol::Udp, Answer::Refused)
            | (Protocol::Sctp, Answer::Unreachable(_) | Answer::Silent) => Ok(()),
            (_, other) => Err(format!("expected a closed port, got {other:?}")),
        }
    }

    fn check_answers(self, servers: &BTreeSet<String>, masqueraded: bool) -> Result<(), String> {
        let mut missing = servers.clone();
        let mut sent = 0;
        while sent < ENOUGH || !missing.is_empty() {
            if sent > MOST {
                return Err(format!("{missing:?} did not answer any of {sent}"));
            }
            sent += 1;
            let (server, seen) = match self.ask() {
                Answer::From { server, seen } => (server, seen),
                other @ (Answer::Echoed
                | Answer::Refused
                | Answer::Silent
                | Answer::Unreachable(_)) => {
                    return Err(format!("expected one of {servers:?}, got {other:?}"));
                }
            };
            if !servers.contains(&server) {
                return Err(format!("expected one of {servers:?}, got {server}"));
            }
            let expected = self.source_seen_by(&server, masqueraded);
            if seen.ip() != expected {
                return Err(format!("{server} saw {}, expected {expected}", seen.ip()));
            }
            missing.remove(&server);
        }
        Ok(())
    }

    fn ask(self) -> Answer {
        self.world.ask(self.client, self.to, self.protocol)
    }

    fn ask_hastily(self) -> Answer {
        self.world.ask_hastily(self.client, self.to, self.protocol)
    }

    /// The client's own address, or the node's on its way to the server.
    fn source_seen_by(self, server: &str, masqueraded: bool) -> IpAddr {
        let family = if self.to.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        family.of(match (masqueraded, is_on_node(server)) {
            (false, _) => self.world.host(self.client).ip(),
            (true, true) => POD_GATEWAY,
            (true, false) => NODE_IP,
        })
    }
}

/// The node's address towards its pods.
const POD_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 1);

/// Connections of a row that must all be refused.
const REFUSALS: usize = 3;

/// Fewest connections of a row with answers: a server that ought not to answer would be one of
/// two, and escapes with a chance of one in a million.
const ENOUGH: usize = 20;

/// One of four servers stays silent in so many connections with a chance of one in 10^24.
const MOST: usize = 200;
