//! The kube-proxy: reads objects, runs the engine, commits, and reports.

mod child_process;
pub mod config;
pub mod conntrack;
pub mod converge;
pub mod direct;
pub mod handover;
pub mod links;
pub mod localhost_proxy;
mod named_file;
pub mod node;
#[cfg(feature = "api-server")]
pub mod node_readiness;
pub mod observe;
pub mod open_files;
pub mod other_modes;
pub mod protobuf_message;
pub mod rate_limit;
pub mod read_back;
pub mod run;
pub mod source;
pub mod writer;
pub mod yaml;
