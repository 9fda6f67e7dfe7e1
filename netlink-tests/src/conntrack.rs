//! An independent reader of the kernel's conntrack table, on `netlink-bindings`.

use std::net::{IpAddr, SocketAddr};

use netlink_bindings::conntrack::{IterableTupleAttrs, Nfgenmsg, Request};

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
    let mut entries = Vec::new();
    for (family, number) in [(Family::Ip, libc::AF_INET), (Family::Ip6, libc::AF_INET6)] {
        let mut header = Nfgenmsg::new();
        header.nfgen_family = u8::try_from(number).expect("a small number");
        let request = Request::new().op_get_dump(&header);
        let outcome = Kernel::open(family, "").dump(&request, |(_, entry)| {
            let original = entry.get_tuple_orig().expect("an entry has two tuples");
            let reply = entry.get_tuple_reply().expect("an entry has two tuples");
            let protocol = original.get_tuple_proto().and_then(|proto| proto.get_proto_num());
            entries.push(Tracked {
                protocol: protocol.expect("an entry has a protocol"),
                sent_to: destination(&original),
                answered_by: source(&reply),
            });
        });
        outcome.unwrap_or_else(|Changed| panic!("conntrack does not tell of changes"));
    }
    entries.sort();
    entries
}

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
