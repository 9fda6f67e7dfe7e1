//! The probes of rows.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use test_hosts::{Answer, NODE_IP};

use super::expect::{Expect, Family, Protocol, Scope, destination};
use super::hosts::is_on_node;
use super::world::World;

/// Probes all rows at once, because silence takes the whole limit.
pub(super) fn failures(world: &World, scope: Scope, rows: &[(&str, &str, Expect)]) -> Vec<String> {
    let mut probes = Vec::new();
    for (client, to, expect) in rows {
        for &family in scope.families {
            let to = destination(to, family);
            let probe = |&protocol| (Probe { world, client, to, protocol }, expect);
            probes.extend(scope.protocols.iter().map(probe));
        }
    }
    thread::scope(|threads| {
        let running = probes
            .into_iter()
            .map(|(probe, expect)| threads.spawn(move || probe.check(expect).err()));
        let running: Vec<_> = running.collect();
        let outcomes = running.into_iter().map(|thread| thread.join().expect("a probe"));
        outcomes.flatten().collect()
    })
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
        let family = Family::of_address(self.to.ip());
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
