//! Measurements of this proxy and of others.
//!
//! `bench` measures each stage on a synthetic cluster, by calling the modules of the daemon. `probe`
//! measures from outside, through an API server, the kube-proxy that runs on the node, whichever it
//! is. `figures` is what both report.

pub mod bench;
pub mod figures;
pub mod probe;
