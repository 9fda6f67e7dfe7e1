//! Netlink bytes and the netlink socket, independent of nftables.

pub mod attr;
pub mod message;
pub mod socket;
