//! Real-kernel tests of deltaproxy, with the hosts of [`test_hosts`].

#![allow(clippy::expect_used, clippy::unwrap_used)] // A broken expectation is a failed test.

pub mod apiserver;
pub mod builds;
pub mod cluster;
pub mod commit_times;
pub mod direct_table;
mod flowtables;
pub mod http;
pub mod kernel_memory;
pub mod metrics;
pub mod scenario;

pub use flowtables::kernel_has_flowtables;
pub use test_hosts::*;
