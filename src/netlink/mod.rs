//! Bytes and the socket. Knows nothing of nftables.

pub mod attr;
pub mod message;
pub mod socket;
