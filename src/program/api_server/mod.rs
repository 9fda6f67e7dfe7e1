//! The API server: as the source of the daemon, and as a list of objects for `verify`.

mod external_ips;
mod follow;
mod followed;
mod server;

use daemon::source::kube::ApiServer;

pub(crate) use self::external_ips::users_of_external_ips;
pub(crate) use self::follow::{follow, remove_node_condition, write_last};
pub(crate) use self::followed::Followed;
pub(crate) use self::server::{check, server_of};

/// Returns whether this process runs in a pod.
pub fn is_in_pod() -> bool {
    ApiServer::InCluster.check().is_ok()
}
