//! The optional parts of the loop, each of them left out by default.

use std::time::Duration;

use engine::LinkNews;
use engine::model::HostAddresses;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use super::cleaning::Cleaning;
use super::direct::DirectFollowing;
use super::least_connections::Balancing;
use super::own_node::{Localhost, MissingNode};
use super::ownership::Handovers;
use super::reads::OpenReader;
use crate::source::notice::Notice;

/// Settings of the loop, and the programs and channels around it.
pub struct Parts<K> {
    /// The loop commits at most once per this time.
    pub min_interval: Duration,
    /// The time of a comparison of the whole kernel with the desired state, in the background; zero
    /// turns it off.
    pub check_period: Duration,
    /// Opens another socket for long dumps, so that commits do not wait for them.
    pub open_reader: Option<OpenReader<K>>,
    /// The addresses around this node; `None` if they never change.
    pub addresses: Option<watch::Receiver<HostAddresses>>,
    /// Serves localhost NodePorts.
    pub localhost: Localhost,
    /// The name of this node, and whether load balancers should use it without a Node object, and
    /// whether it is ready.
    pub node: (String, MissingNode),
    /// Deletes stale UDP flows.
    pub cleaning: Option<Cleaning>,
    /// Adjusts weights to live connections, for scheduler `lc`.
    pub balancing: Option<Balancing>,
    /// Removes the rules of other proxy modes; returns whether there were any. Starts once both
    /// tables are in place.
    pub leaving: Option<BoxFuture<'static, bool>>,
    /// What follows the links of the node.
    pub links: Links,
    /// Changes flags of the tables, and leaves them at the end; `None` if they stay as they are.
    pub handovers: Option<Handovers<K>>,
    /// Receives problems, in addition to the log. Never blocks the loop.
    pub notices: Option<mpsc::Sender<Notice>>,
}

/// What follows the links of the node.
#[derive(Default)]
pub struct Links {
    /// Devices of the network namespace; `None` without flowtables.
    pub devices: Option<mpsc::Receiver<LinkNews>>,
    /// Lets nodes hand packets to each other; `None` while direct return is off.
    pub direct: Option<DirectFollowing>,
}

/// Waits for changes of devices; returns `None` if none are followed.
pub(super) async fn next(devices: &mut Option<mpsc::Receiver<LinkNews>>) -> Option<LinkNews> {
    devices.as_mut()?.recv().await
}

impl<K> Default for Parts<K> {
    fn default() -> Self {
        Self {
            min_interval: Duration::ZERO,
            check_period: Duration::ZERO,
            open_reader: None,
            addresses: None,
            localhost: Localhost::default(),
            node: (String::new(), MissingNode::default()),
            cleaning: None,
            balancing: None,
            leaving: None,
            links: Links::default(),
            handovers: None,
            notices: None,
        }
    }
}
