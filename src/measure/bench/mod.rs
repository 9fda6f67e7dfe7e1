//! Measures rule sync on this machine: `deltaproxy bench`.
//!
//! A synthetic cluster changes in a sequence that a seed determines. Every change enters as the
//! bytes of a watch and passes the product's own stages to the kernel; none of them is copied here.

mod baseline;
mod change;
mod cluster;
mod daemon;
mod distribution;
mod error;
mod kube_proxy;
mod live;
mod loopback;
mod memory;
mod namespace;
mod pace;
mod pipeline;
mod random;
mod report;
mod settings;
mod size;
mod spreads;
mod traffic;
mod watch_frame;

pub use change::{ChangeKind, Changes, ClusterChange, Deed, Mix, MixError};
pub use cluster::Cluster;
pub use distribution::Distribution;
pub use error::{BenchError, check_unused};
pub use namespace::{NamespaceError, enter_own};
pub use report::{BenchReport, SizeReport};
pub use settings::{BenchSettings, MAX_ENDPOINTS, MAX_SERVICES, SettingsError};
pub use size::measure;
pub use watch_frame::WatchFrame;
