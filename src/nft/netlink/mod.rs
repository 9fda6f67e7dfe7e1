//! Netlink bytes and the netlink socket, independent of nftables.

pub mod attr;
pub mod link;
pub mod message;
pub mod rtnetlink;
pub mod socket;
