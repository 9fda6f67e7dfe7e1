//! Route lookups in the kernel, `RTM_GETROUTE` of `<linux/rtnetlink.h>`.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::libc::{
    RTA_DST, RTA_GATEWAY, RTA_IIF, RTA_MARK, RTA_OIF, RTA_PREFSRC, RTA_SRC, RTM_GETROUTE,
    RTM_NEWROUTE,
};
use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::rtnetlink::Rtnetlink;
use nft::netlink::attr::{AttrWriter, Attrs};
use nft::netlink::message::{self, Message};
use nft::{Family, Value};

/// Properties of a packet, besides its destination, that routing depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    /// Source address.
    pub source: Option<IpAddr>,
    /// Index of the input interface; 0 for a packet of this node.
    pub interface: u32,
    /// Packet mark.
    pub mark: u32,
}

/// Result of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// `RTN_*`: unicast, local, and so on.
    pub kind: u32,
    /// Index of the output interface; 0 if the route names none.
    pub interface: u32,
    /// Source address that the node uses for its own packets.
    pub source: Option<IpAddr>,
    /// The router to which packets go, of any family; without one, the destination is on the link of
    /// the interface.
    pub gateway: Option<IpAddr>,
}

/// The kernel has no route; contains its error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoRoute(pub i32);

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Errno::from_raw(self.0).desc())
    }
}

/// Length of `struct rtmsg`, and the offset of its type.
const RTMSG_LENGTH: usize = 12;
const RTM_TYPE: usize = 7;
// enum rtattr_type_t
/// A gateway of the other family (RFC 5549).
const RTA_VIA: u16 = 18;

impl Rtnetlink {
    /// Looks up the route of a packet to `destination`. With an interface it is that of a received
    /// packet, to which `rp_filter` and `forwarding` apply for IPv4.
    ///
    /// # Errors
    /// The socket failed, or the answer cannot be decoded.
    pub fn route(
        &mut self,
        destination: IpAddr,
        packet: Way,
    ) -> io::Result<Result<Route, NoRoute>> {
        let family = Family::of(destination);
        let bits = if family == Family::Ip { 32 } else { 128 };
        let source_bits = if packet.source.is_some() { bits } else { 0 };
        let mut fixed = [0; RTMSG_LENGTH];
        fixed[..3].copy_from_slice(&[family.number(), bits, source_bits]);
        let fill = |w: &mut AttrWriter<'_>| {
            w.bytes(RTA_DST, Value::new().ip(destination).as_bytes());
            if let Some(source) = packet.source {
                w.bytes(RTA_SRC, Value::new().ip(source).as_bytes());
            }
            if packet.interface != 0 {
                w.bytes(RTA_IIF, &packet.interface.to_ne_bytes());
            }
            if packet.mark != 0 {
                w.bytes(RTA_MARK, &packet.mark.to_ne_bytes());
            }
        };
        let mut found = None;
        let each = |message: Message<'_>| {
            if message.kind == RTM_NEWROUTE {
                found = Some(decode(message.payload));
            }
        };
        match self.request((RTM_GETROUTE, message::ACK), &fixed, fill, each) {
            Ok(()) => found.unwrap_or_else(|| Err(io::Error::other("an answer without a route"))),
            Err(error) => error.raw_os_error().map(|errno| Err(NoRoute(errno))).ok_or(error),
        }
    }
}

/// Returns the index of an interface of this thread's network namespace.
///
/// # Errors
/// The interface does not exist.
pub fn interface_index(name: &str) -> io::Result<u32> {
    Ok(if_nametoindex(name)?)
}

/// Returns the name of an interface of this thread's network namespace; `None` if it does not
/// exist.
pub fn interface_name(index: u32) -> Option<String> {
    if_indextoname(index).map(CString::into_string).ok()?.ok()
}

/// Returns the address that these 4 or 16 bytes are, in network byte order; `None` for another length.
pub fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|it| Ipv4Addr::from(it).into()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|it| Ipv6Addr::from(it).into()),
    }
}

/// Decodes `struct rtmsg` and its attributes.
fn decode(payload: &[u8]) -> io::Result<Result<Route, NoRoute>> {
    let (fixed, attributes) = payload
        .split_at_checked(RTMSG_LENGTH)
        .ok_or_else(|| io::Error::other("a route of fewer bytes than its header"))?;
    let kind = u32::from(fixed[RTM_TYPE]);
    let mut route = Route { kind, interface: 0, source: None, gateway: None };
    for attr in Attrs::new(attributes) {
        let attr = attr.map_err(io::Error::other)?;
        match (attr.kind, attr.payload) {
            (RTA_OIF, &[a, b, c, d]) => route.interface = u32::from_ne_bytes([a, b, c, d]),
            (RTA_PREFSRC, bytes) => route.source = address_of(bytes),
            (RTA_GATEWAY, bytes) => route.gateway = address_of(bytes),
            (RTA_VIA, [_, _, bytes @ ..]) => route.gateway = address_of(bytes),
            (_, _) => {}
        }
    }
    // For IPv6, the kernel returns a route of these types where it returns an error for IPv4.
    Ok(match fixed[RTM_TYPE] {
        6 => Err(NoRoute(Errno::EINVAL as i32)),
        7 => Err(NoRoute(Errno::ENETUNREACH as i32)),
        8 => Err(NoRoute(Errno::EACCES as i32)),
        _ => Ok(route),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_type_interface_and_source() {
        let mut payload = vec![0; RTMSG_LENGTH];
        payload[RTM_TYPE] = 2;
        let mut attributes = AttrWriter::new(&mut payload);
        attributes.bytes(RTA_OIF, &7u32.to_ne_bytes());
        attributes.bytes(RTA_PREFSRC, &[192, 168, 50, 2]);
        let source = Some(IpAddr::from([192, 168, 50, 2]));
        let route = Route { kind: 2, interface: 7, source, gateway: None };
        assert_eq!(decode(&payload).unwrap(), Ok(route));
        payload[RTM_TYPE] = 7;
        assert_eq!(decode(&payload).unwrap(), Err(NoRoute(Errno::ENETUNREACH as i32)));
        assert!(decode(&payload[..5]).is_err());
    }

    #[test]
    fn a_gateway_of_either_family_is_recorded() {
        // A gateway of another family has the number of its family before it.
        let rows = [(RTA_GATEWAY, &[192, 168, 50, 1][..]), (RTA_VIA, &[2, 0, 192, 168, 50, 1])];
        for (kind, bytes) in rows {
            let mut payload = vec![0; RTMSG_LENGTH];
            payload[RTM_TYPE] = 1;
            AttrWriter::new(&mut payload).bytes(kind, bytes);
            let gateway = decode(&payload).unwrap().unwrap().gateway;
            assert_eq!(gateway, Some(IpAddr::from([192, 168, 50, 1])));
        }
    }
}
