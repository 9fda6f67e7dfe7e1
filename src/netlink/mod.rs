//! Bytes and the socket. Knows nothing of nftables.
