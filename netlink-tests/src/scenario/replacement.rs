//! Replacements: commits that delete elements and add them again, while a client opens flows whose
//! packets look them up.
//!
//! A change of a slot or a route is such a replacement of one key. Here the new element equals the
//! old one, so every packet has the same fate at any time.
//!
//! The client is the node, which learns at once what the rules did with a datagram: nothing is
//! routed to the endpoints, so a translated datagram fails with ENETUNREACH, and a refused or dropped
//! one with EPERM. Any other is delivered, because the node has all the addresses of the services.
//! Conntrack keeps no entry of what fails, so each datagram is the first packet of a flow. After one
//! that was delivered, the client takes another source port.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use nft::kernel::{Kernel, Nftables};
use nft::{Operation, Transaction};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Protocol, Type};

use super::node::Node;
use super::object::{Object, ServiceCidr};
use super::proxy::{Proxy, routing};
use super::race::{leave_one_processor, wanted_flows};
use test_hosts::Host;
use test_hosts::Net;
use test_hosts::datagram;
use test_hosts::{Deadline, PATIENCE};

/// What the rules do with the first packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It gets an endpoint.
    Translated,
    /// It is refused or dropped.
    Refused,
    /// The rules leave it as it is.
    Ignored,
}

/// Where a client sends datagrams, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    to: SocketAddrV4,
    /// Each datagram comes from another address; otherwise all come from the node's own.
    is_spoofed: bool,
    fate: Fate,
}

/// A race of flows against replacements.
#[derive(Debug)]
pub struct Replacement {
    node: Host,
    transaction: Transaction,
}

impl Call {
    /// Datagrams of the node to an address, with the fate that they must have.
    ///
    /// # Panics
    /// When `to` is no address and port.
    #[must_use]
    #[track_caller]
    pub fn new(to: &str, fate: Fate) -> Self {
        Self { to: to.parse().expect("an address and port"), is_spoofed: false, fate }
    }

    /// The same from clients with no record of affinity.
    #[must_use]
    pub fn spoofed(self) -> Self {
        Self { is_spoofed: true, ..self }
    }

    /// The source of a datagram of a number.
    fn source(self, number: usize) -> IpAddr {
        let number = u32::try_from(number % SPOOFED).expect("less than 2^20");
        if self.is_spoofed {
            Ipv4Addr::from(u32::from(FIRST_SPOOFED) + number).into()
        } else {
            crate::NODE_IP.into()
        }
    }
}

impl Replacement {
    /// A node that serves the objects, and has the addresses. Commits will replace the elements of
    /// the sets with these names.
    ///
    /// # Panics
    /// When one of the sets has no element.
    #[must_use]
    #[track_caller]
    pub fn of(sets: &[&str], objects: &[&dyn Object], addresses: &[&str]) -> Self {
        let net = Net::new();
        let own = addresses.iter().map(|it| it.parse::<IpAddr>().expect("an address"));
        net.node().add_addresses(own);
        let mut proxy = Proxy::start(net.node(), routing());
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
        let sent = proxy.apply(&[&[&Node::new() as &dyn Object, &cidrs], objects].concat());
        assert_eq!(sent.problems, [""; 0]);
        let operations = sent.transactions.iter().flat_map(|it| &it.operations);
        let mut operations: Vec<_> = operations.filter(|it| adds_to(it, sets)).cloned().collect();
        let found = operations.iter().filter_map(name_of_set).collect::<Vec<_>>();
        assert!(sets.iter().all(|set| found.contains(set)), "only {found:?} have elements");
        // In the order of `Piece::into_operations`.
        let deletions: Vec<_> = operations.iter().filter_map(deletion).collect();
        operations.splice(..0, deletions);
        Self { node: net.node().clone(), transaction: Transaction { operations } }
    }

    /// Sends datagrams of the calls in turns during commits.
    ///
    /// # Panics
    /// When one has another fate, or they are too slow to be many.
    #[track_caller]
    pub fn run(&self, calls: &[Call]) {
        let wanted = wanted_flows().unwrap_or(FLOWS);
        let progress = Progress::default();
        let missed = thread::scope(|threads| {
            let commits = threads.spawn(|| self.commit(&progress));
            let missed = self.node.run(|| send(calls, wanted, &progress));
            progress.ended.store(true, SeqCst);
            commits.join().expect("the kernel commits");
            missed
        });
        let (flows, commits) = (progress.flows.load(SeqCst), progress.commits.load(SeqCst));
        let lost: usize = missed.values().sum();
        let result = format!("{flows} flows, {commits} commits, {lost} failures");
        eprintln!("{}: {result}", thread::current().name().unwrap_or_default());
        assert!(missed.is_empty(), "{result}\n{missed:#?}");
    }

    fn commit(&self, progress: &Progress) {
        let mut kernel = self.node.run(Nftables::open).expect("nftables");
        while !progress.ended.load(SeqCst) {
            kernel.commit(&self.transaction).expect("the elements are as they were");
            progress.commits.fetch_add(1, SeqCst);
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    flows: AtomicUsize,
    commits: AtomicUsize,
    ended: AtomicBool,
}

/// Sends datagrams until there are enough; counts those with another fate than they must have.
fn send(
    calls: &[Call],
    wanted: usize,
    progress: &Progress,
) -> BTreeMap<(SocketAddrV4, Fate), usize> {
    leave_one_processor();
    let mut socket = open();
    let limit = Deadline::after(PATIENCE * 60);
    let mut missed = BTreeMap::new();
    let mut flow = 0;
    while flow < wanted || progress.commits.load(SeqCst) < COMMITS {
        let commits = progress.commits.load(SeqCst);
        assert!(limit.left().is_some(), "only {flow} flows and {commits} commits in time");
        for call in calls {
            let (source, to) = (call.source(flow), SocketAddr::V4(call.to));
            let fate = match datagram::send(socket.as_fd(), source, to, b"x") {
                Ok(()) => Fate::Ignored,
                Err(error) if is(&error, Errno::ENETUNREACH) => Fate::Translated,
                Err(error) if is(&error, Errno::EPERM) => Fate::Refused,
                Err(error) => panic!("from {source} to {to}: {error}"),
            };
            flow += 1;
            if fate != call.fate {
                socket = open();
                *missed.entry((call.to, fate)).or_default() += 1;
            }
        }
        progress.flows.store(flow, SeqCst);
    }
    missed
}

/// Opens a socket that may send from any address.
fn open() -> OwnedFd {
    let [socket, _] = datagram::open_both(Type::DGRAM, Protocol::UDP, 0);
    setsockopt(&socket, sockopt::IpTransparent, &true).expect("CAP_NET_ADMIN");
    socket
}

fn is(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn adds_to(operation: &Operation, sets: &[&str]) -> bool {
    name_of_set(operation).is_some_and(|name| sets.contains(&name))
}

fn name_of_set(operation: &Operation) -> Option<&str> {
    let Operation::AddElements(_, set, _) = operation else { return None };
    Some(&set.name)
}

fn deletion(operation: &Operation) -> Option<Operation> {
    let Operation::AddElements(table, set, elements) = operation else { return None };
    Some(Operation::DeleteElements(table.clone(), set.clone(), elements.clone()))
}

/// Flows of a race, unless `RACE_FLOWS` has another count. They take some seconds.
const FLOWS: usize = 50_000;

/// Fewest commits of a race.
const COMMITS: usize = 100;

/// Spoofed sources: 10.128.0.0/12.
const FIRST_SPOOFED: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
const SPOOFED: usize = 1 << 20;
