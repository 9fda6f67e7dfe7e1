//! Metrics, health, and the ports that serve them. Depends on no module above it; receives values
//! only.

mod accept;
mod buckets;
mod causes;
mod closed_ports;
mod commit_metrics;
mod condition;
mod connections;
mod content;
mod exposition;
mod health_checks;
mod health_state;
mod histogram;
mod history;
mod hosts;
mod http_responses;
mod hub;
mod kube_proxy_metrics;
mod local;
mod localhost;
mod loop_metrics;
mod metric;
mod metric_family;
mod metrics;
mod native_buckets;
mod page;
mod problems;
mod process;
mod readiness;
mod recent;
mod record;
mod response;
mod server;
mod service_counts;
mod service_health;
mod shares;
mod slis;
mod times;
mod zpages;

pub use causes::{Cause, Causes};
pub use closed_ports::ClosedPorts;
pub use commit_metrics::{CommitMetrics, CommitStage, SetSizes, Transaction};
pub use content::{ReadCounts, ServedContent};
pub use health_checks::HealthChecks;
pub use http_responses::Site;
pub use hub::Observe;
pub use kube_proxy_metrics::KubeProxy;
pub use local::serve_local;
pub use localhost::{LocalhostMetrics, RefusedConnection};
pub use loop_metrics::{
    CheckMetrics, Difference, DirectMetrics, LeastConnectionsMetrics, ServiceGauges,
};
pub use metric::{Counter, Family, Gauge};
pub use metrics::{Configuration, Metrics, Own, ServerMetrics};
pub use page::{PageSetup, Query, Search};
pub use problems::{Finder, LeftOut};
pub use readiness::Readiness;
pub(crate) use server::{ACCEPT_RETRY, BIND_RETRY, listen_until};
pub use server::{bind, is_absent, serve, serve_at};
pub use service_counts::{
    CountStore, KernelCounts, RefusedCount, ResetCount, ServiceCounts, ServicePortCount,
};
pub use service_health::serve_health_checks;
pub use shares::Shares;
pub use zpages::Startup;
