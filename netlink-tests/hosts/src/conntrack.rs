//! An independent reader of the kernel's conntrack table, on `netlink-bindings`, and its writer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use netlink_bindings::conntrack::{IterableTupleAttrs, Nfgenmsg, Request};
use nft::netlink::attr::AttrWriter;
use nft::netlink::message::{ACK, Header, Meaning, Messages, REQUEST, append};
use nft::netlink::socket::{Socket, Wait};

use crate::reader::{Changed, Family, Kernel};

/// An entry of the conntrack table, as far as tests look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tracked {
    /// The protocol's number.
    pub protocol: u8,
    /// Original destination; port 0 for protocols without ports.
    pub sent_to: SocketAddr,
    /// Source of the answers.
    pub answered_by: SocketAddr,
}

/// All entries of the calling thread's network namespace, sorted.
pub(crate) fn read() -> Vec<Tracked> {
    read_with_status().into_iter().map(|(entry, _)| entry).collect()
}

/// The entries of which a flowtable forwards the packets, sorted.
pub(crate) fn read_offloaded() -> Vec<Tracked> {
    let mut entries = read_with_status();
    entries.retain(|(_, status)| status & IPS_OFFLOAD != 0);
    entries.into_iter().map(|(entry, _)| entry).collect()
}

/// All entries with their status bits, sorted.
fn read_with_status() -> Vec<(Tracked, u32)> {
    let mut entries = Vec::new();
    for (family, number) in [(Family::Ip, libc::AF_INET), (Family::Ip6, libc::AF_INET6)] {
        let mut header = Nfgenmsg::new();
        header.nfgen_family = u8::try_from(number).expect("a small number");
        let request = Request::new().op_get_dump(&header);
        let outcome = Kernel::open(family, "").dump(&request, |(_, entry)| {
            let original = entry.get_tuple_orig().expect("an entry has two tuples");
            let reply = entry.get_tuple_reply().expect("an entry has two tuples");
            let protocol = original.get_tuple_proto().and_then(|proto| proto.get_proto_num());
            let tracked = Tracked {
                protocol: protocol.expect("an entry has a protocol"),
                sent_to: destination(&original),
                answered_by: source(&reply),
            };
            entries.push((tracked, entry.get_status().unwrap_or(0)));
        });
        outcome.unwrap_or_else(|Changed| panic!("conntrack does not tell of changes"));
    }
    entries.sort();
    entries
}

/// Adds entries that packets did not make, of clients of their own, to the calling thread's network
/// namespace. They stay for an hour.
pub(crate) fn write(entries: &[Tracked]) {
    let mut table = TrackedFlows::open();
    for entry in entries {
        let address = match entry.sent_to {
            SocketAddr::V4(_) => Ipv4Addr::new(10, 244, 77, 1).into(),
            SocketAddr::V6(_) => Ipv6Addr::new(0xfd00, 77, 0, 0, 0, 0, 0, 1).into(),
        };
        let client = SocketAddr::new(address, NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        table.add(client, entry);
    }
}

/// Adds entries without packets, and finds them again without a dump.
#[derive(Debug)]
pub struct TrackedFlows(Socket);

impl TrackedFlows {
    /// Opens the table of the calling thread's network namespace.
    ///
    /// # Panics
    /// Without a netlink socket.
    #[must_use]
    pub fn open() -> Self {
        Self(Socket::open(NETFILTER).expect("a conntrack socket"))
    }

    /// Adds an entry, which stays for an hour.
    ///
    /// # Panics
    /// When the kernel refuses it.
    #[track_caller]
    pub fn add(&mut self, client: SocketAddr, entry: &Tracked) {
        let create = Header { kind: NEW, flags: REQUEST | ACK | NLM_F_CREATE_EXCL, sequence: 1 };
        let errno = self.request(create, client, entry, |w| {
            w.nest(REPLY, |w| write_tuple(w, entry.protocol, entry.answered_by, client));
            w.be32(TIMEOUT, 3600);
        });
        assert_eq!(errno, Some(0), "{entry:?}");
    }

    /// Returns whether there is an entry of this client, with any endpoint.
    ///
    /// # Panics
    /// When the kernel refuses the request.
    #[must_use]
    #[track_caller]
    pub fn contains(&mut self, client: SocketAddr, entry: &Tracked) -> bool {
        let get = Header { kind: GET, flags: REQUEST, sequence: 2 };
        match self.request(get, client, entry, |_| {}) {
            None => true,
            Some(errno) => {
                assert_eq!(errno, libc::ENOENT, "{entry:?}");
                false
            }
        }
    }

    /// Sends a request about one entry. Returns the number of the acknowledgement, or `None` if the
    /// answer is an entry.
    #[track_caller]
    fn request(
        &mut self,
        request: Header,
        client: SocketAddr,
        entry: &Tracked,
        more: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Option<i32> {
        let family = if entry.sent_to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let header = [u8::try_from(family).expect("a small number"), 0, 0, 0];
        let mut message = Vec::new();
        append(&mut message, request, &header, |w| {
            w.nest(ORIGINAL, |w| write_tuple(w, entry.protocol, client, entry.sent_to));
            more(w);
        })
        .expect("a short request");
        self.0.send(&message).expect("the kernel takes requests");
        let answer = self.0.receive(Wait::Limited).expect("an answer");
        let answer = Messages::new(answer).next().expect("a message").and_then(|it| it.meaning());
        match answer.expect("a whole message") {
            Meaning::Acknowledgement(end) => Some(end.errno),
            Meaning::Object(_) => None,
            other @ (Meaning::Done(_) | Meaning::Nothing | Meaning::Overrun) => {
                panic!("no answer about {entry:?}: {other:?}")
            }
        }
    }
}

fn write_tuple(w: &mut AttrWriter<'_>, protocol: u8, from: SocketAddr, to: SocketAddr) {
    w.nest(1, |w| match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            w.bytes(1, &from.octets());
            w.bytes(2, &to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            w.bytes(3, &from.octets());
            w.bytes(4, &to.octets());
        }
        pair => panic!("two families: {pair:?}"),
    });
    w.nest(2, |w| {
        w.u8(1, protocol);
        w.be16(2, from.port());
        w.be16(3, to.port());
    });
}

/// Every entry has another client.
static NEXT_PORT: AtomicU16 = AtomicU16::new(1024);

/// `IPS_OFFLOAD` of `<linux/netfilter/nf_conntrack_common.h>`.
const IPS_OFFLOAD: u32 = 1 << 14;
const NETFILTER: isize = 12;
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const NLM_F_CREATE_EXCL: u16 = 0x600;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const TIMEOUT: u16 = 7;

fn destination(tuple: &IterableTupleAttrs<'_>) -> SocketAddr {
    let ip = tuple.get_tuple_ip().expect("a tuple has addresses");
    let v4 = || ip.get_ip_v4_dst().map(IpAddr::from);
    let address = v4().or_else(|_| ip.get_ip_v6_dst().map(IpAddr::from));
    let port = tuple.get_tuple_proto().and_then(|proto| proto.get_proto_dst_port());
    SocketAddr::new(address.expect("a destination"), port.unwrap_or(0))
}

fn source(tuple: &IterableTupleAttrs<'_>) -> SocketAddr {
    let ip = tuple.get_tuple_ip().expect("a tuple has addresses");
    let v4 = || ip.get_ip_v4_src().map(IpAddr::from);
    let address = v4().or_else(|_| ip.get_ip_v6_src().map(IpAddr::from));
    let port = tuple.get_tuple_proto().and_then(|proto| proto.get_proto_src_port());
    SocketAddr::new(address.expect("a source"), port.unwrap_or(0))
}
