//! Bytes and the socket. Knows nothing of nftables.

pub mod message;
pub mod socket;
