//! Direct return in the loop: what is known of the links goes to the engine.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use engine::Engine;
use engine::direct::Links;
use engine::direct::ruleset::{DirectSet, table};
use engine::model::Cluster;
use engine::routing::DirectReturn;
use nft::kernel::Kernel;
use tokio::sync::{mpsc, watch};

use super::wait::now;
use crate::direct::{
    AllowedDevices, Following, Neighbours, TUNNEL_DEVICE, TunnelEnds, TunnelSettings, other_nodes,
    own_address, remove_tunnel,
};
use crate::observe::Observe;
use crate::writer::{Writer, WriterGone};

/// The links of the node.
pub struct DirectFollowing {
    news: mpsc::Receiver<Links>,
    nodes: watch::Sender<Vec<IpAddr>>,
    own_address: watch::Sender<Option<IpAddr>>,
    tunnel_ends: watch::Sender<TunnelEnds>,
    has_tunnel: bool,
    next_count: Option<Instant>,
}

/// Time between two counts of connections.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// Time that nodes hand packets on after the end of the daemon: an image is pulled.
const LIFETIME: Duration = Duration::from_secs(600);

impl DirectFollowing {
    /// Starts to follow the links, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn start(settings: &DirectReturn) -> io::Result<Self> {
        let (nodes, addresses) = watch::channel(Vec::new());
        let (own_address, address) = watch::channel(None);
        let (tunnel_ends, ends) = watch::channel(TunnelEnds::default());
        let devices = AllowedDevices::of(settings, address);
        let tunnel = TunnelSettings::of(settings, ends);
        let has_tunnel = tunnel.is_some();
        let news = Neighbours::follow(Following { addresses, devices, tunnel })?;
        let next_count = None;
        Ok(Self { news, nodes, own_address, tunnel_ends, has_tunnel, next_count })
    }

    /// Takes the links from a channel instead of the kernel. There is no tunnel.
    #[must_use]
    pub fn of_links(news: mpsc::Receiver<Links>) -> Self {
        let (nodes, own_address) = (watch::Sender::default(), watch::Sender::default());
        let tunnel_ends = watch::Sender::default();
        Self { news, nodes, own_address, tunnel_ends, has_tunnel: false, next_count: None }
    }

    /// Turns direct return on before anything is read: services that nodes hand to each other go on
    /// so. Removes the tunnel if there is to be none.
    pub(super) async fn begin<K: Kernel + Send + 'static>(
        following: Option<&mut Self>,
        engine: &mut Engine,
        writer: &Writer<K>,
    ) -> Result<(), WriterGone> {
        if following.is_some() {
            engine.hand_packets_on(now());
        }
        if following.is_some_and(|it| it.has_tunnel) {
            return Ok(());
        }
        match writer.run(|_| remove_tunnel()).await? {
            Ok(true) => {
                tracing::info!("removed device {TUNNEL_DEVICE}: direct return has no tunnel")
            }
            Ok(false) => {}
            Err(error) => tracing::warn!("device {TUNNEL_DEVICE} stays: {error}"),
        }
        Ok(())
    }

    /// Lets the addresses of the cluster's nodes be followed.
    pub(super) fn follow(&self, cluster: &Cluster) {
        set(&self.tunnel_ends, TunnelEnds::of(cluster));
        set(&self.own_address, own_address(cluster));
        set(&self.nodes, other_nodes(cluster));
    }

    /// Counts the connections whose node is remembered, if a count is due, and sets the metrics.
    pub(super) async fn report<K: Kernel + Send + 'static>(
        &mut self,
        engine: &Engine,
        writer: &Writer<K>,
        observe: &Observe,
    ) -> Result<(), WriterGone> {
        let Some(direct) = engine.direct() else { return Ok(()) };
        let metrics = &observe.metrics().direct;
        metrics.state(direct.services(), &direct.nodes_by_state(engine.cluster()));
        if !engine.tables().have_direct_return() || self.next_count.is_some_and(|next| next > now())
        {
            return Ok(());
        }
        self.next_count = Some(now() + COUNT_INTERVAL);
        let count = |kernel: &mut K| kernel.count_elements(&table(), DirectSet::Connections.name());
        match writer.run(count).await? {
            Ok(count) => count.into_iter().for_each(|count| metrics.connections.set(count)),
            Err(error) => tracing::warn!("cannot count connections of direct return: {error}"),
        }
        Ok(())
    }
}

/// Sends a value that is not the present one.
fn set<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|known| {
        let differs = *known != value;
        *known = value;
        differs
    });
}

/// Waits for other links; returns `None` without direct return.
pub(super) async fn changed(following: &mut Option<DirectFollowing>) -> Option<Links> {
    following.as_mut()?.news.recv().await
}

/// Lets nodes hand packets on for a while after the end of the daemon: an update of it takes less
/// time, and nobody updates the table any more.
pub(super) async fn end<K: Kernel + Send + 'static>(
    engine: &Engine,
    writer: &Writer<K>,
) -> Result<(), WriterGone> {
    let end = SystemTime::now() + LIFETIME;
    let Some(ending) = engine.ending(end) else {
        return Ok(());
    };
    let committed = writer.run(move |kernel| kernel.commit(&ending).map(drop)).await?;
    if let Err(error) = committed {
        tracing::warn!("table direct-return stays in use until the next start: {error}");
    }
    Ok(())
}
