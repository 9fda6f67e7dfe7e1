//! nftables objects and the transaction. No Kubernetes, no I/O.
