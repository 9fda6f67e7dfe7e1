//! Direct return in the loop: what is known of the links goes to the engine, and the table is read
//! when that is due.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use engine::Engine;
use engine::direct::ruleset::{SetId, table};
use engine::direct::{Direct, Found, Links};
use engine::model::Cluster;
use engine::routing::DirectReturn;
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::kernel::{Kernel, OthersChanges, ReadError};
use tokio::sync::{mpsc, watch};

use super::reads::OpenReader;
use super::wait::now;
use crate::direct::{
    AllowedDevices, Following, Neighbours, TUNNEL_DEVICE, TunnelEnds, TunnelSettings, other_nodes,
    own_address, read, remove, remove_tunnel,
};
use crate::observe::Observe;
use crate::writer::{Writer, WriterGone};

/// The links of the node, and the table when it is being read.
pub struct DirectFollowing {
    news: mpsc::Receiver<Links>,
    nodes: watch::Sender<Vec<IpAddr>>,
    own_address: watch::Sender<Option<IpAddr>>,
    tunnel_ends: watch::Sender<TunnelEnds>,
    has_tunnel: bool,
    reading: Option<BoxFuture<'static, Result<Result<Found, ReadError>, WriterGone>>>,
    next_count: Option<Instant>,
}

/// Time between two counts of connections.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// Time that nodes hand packets on after the end of the daemon: an image is pulled.
const LIFETIME: Duration = Duration::from_secs(600);

/// A step of [`DirectFollowing`].
pub(super) enum DirectStep {
    /// The links are others.
    Links(Links),
    /// The table was read.
    Read(Result<Found, ReadError>),
}

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
        Ok(Self { news, nodes, own_address, tunnel_ends, has_tunnel, reading: None, next_count })
    }

    /// Reads the table before anything is committed: services that nodes hand to each other go on
    /// so. Removes it if direct return is off, and the tunnel if there is to be none.
    pub(super) async fn begin<K: Kernel + Send + 'static>(
        following: Option<&mut Self>,
        engine: &mut Engine,
        writer: &Writer<K>,
    ) -> Result<(), WriterGone> {
        if !following.as_ref().is_some_and(|it| it.has_tunnel) {
            match writer.run(|_| remove_tunnel()).await? {
                Ok(true) => {
                    tracing::info!("removed device {TUNNEL_DEVICE}: direct return has no tunnel")
                }
                Ok(false) => {}
                Err(error) => tracing::warn!("device {TUNNEL_DEVICE} stays: {error}"),
            }
        }
        if following.is_some() {
            engine.hand_packets_on(now());
            take(DirectStep::Read(writer.run(read).await?), engine);
            return Ok(());
        }
        match writer.run(remove).await? {
            Ok(true) => tracing::info!("removed table direct-return: direct return is off"),
            Ok(false) => {}
            Err(error) => tracing::warn!("table direct-return stays: {error}"),
        }
        Ok(())
    }

    /// Lets the addresses of the cluster's nodes be followed.
    pub(super) fn follow(&self, cluster: &Cluster) {
        set(&self.tunnel_ends, TunnelEnds::of(cluster));
        set(&self.own_address, own_address(cluster));
        set(&self.nodes, other_nodes(cluster));
    }

    /// Returns when there is something to do, besides the next step.
    pub(super) fn due(following: Option<&Self>, engine: &Engine) -> Option<Instant> {
        let (following, direct) = following.zip(engine.direct())?;
        let reading = direct.reading_due().filter(|_| following.reading.is_none());
        reading.into_iter().chain(direct.due()).min()
    }

    /// Reads the table if that is due.
    pub(super) fn work<K: Kernel + Send + 'static>(
        &mut self,
        engine: &Engine,
        writer: &Writer<K>,
        open_reader: Option<&OpenReader<K>>,
    ) {
        let due = engine.direct().and_then(Direct::reading_due);
        if self.reading.is_none() && due.is_some_and(|due| due <= now()) {
            self.reading = Some(read_by(open_reader.and_then(|open| open()), writer));
        }
    }

    /// Counts the connections whose node is remembered, if a count is due, and sets the metrics.
    pub(super) async fn report<K: Kernel + Send + 'static>(
        &mut self,
        engine: &Engine,
        writer: &Writer<K>,
        observe: &Observe,
    ) -> Result<(), WriterGone> {
        let Some(direct) = engine.direct() else { return Ok(()) };
        let metrics = observe.direct_return();
        metrics.state(direct.services(), &direct.nodes_by_state(engine.cluster()));
        if !direct.has_table() || self.next_count.is_some_and(|next| next > now()) {
            return Ok(());
        }
        self.next_count = Some(now() + COUNT_INTERVAL);
        let count = |kernel: &mut K| kernel.count_elements(&table(), SetId::Connections.name());
        match writer.run(count).await? {
            Ok(count) => count.into_iter().for_each(|count| metrics.connections(count)),
            Err(error) => tracing::warn!("cannot count connections of direct return: {error}"),
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<DirectStep, WriterGone> {
        if let Some(reading) = &mut self.reading {
            let found = reading.await;
            self.reading = None;
            return found.map(DirectStep::Read);
        }
        match self.news.recv().await {
            Some(links) => Ok(DirectStep::Links(links)),
            None => std::future::pending().await,
        }
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

/// Waits for the next step; forever without direct return.
pub(super) async fn next_direct(
    following: &mut Option<DirectFollowing>,
) -> Result<DirectStep, WriterGone> {
    match following {
        Some(following) => following.step().await,
        None => std::future::pending().await,
    }
}

/// Processes a step.
pub(super) fn take(step: DirectStep, engine: &mut Engine) {
    engine.note_time(now());
    match (step, engine.direct_mut()) {
        (DirectStep::Links(links), _) => engine.learn_links(links),
        (DirectStep::Read(Ok(found)), Some(direct)) => direct.replace_installed(found),
        (DirectStep::Read(Err(error)), Some(direct)) => {
            tracing::warn!("cannot read table direct-return: {error}; trying again");
            direct.failed_reading();
        }
        (DirectStep::Read(_), None) => {}
    }
}

/// Lets the table be read if another program changed it, and removes those changes.
pub(super) fn take_changes(changes: &mut OthersChanges, engine: &mut Engine) {
    let concerns_table = match changes {
        OthersChanges::Nothing => false,
        OthersChanges::Anything => true,
        OthersChanges::Elements(keys) => {
            let all = keys.len();
            keys.retain(|key| key.table != table());
            let concerns_table = keys.len() < all;
            if keys.is_empty() {
                *changes = OthersChanges::Nothing;
            }
            concerns_table
        }
    };
    if let Some(direct) = engine.direct_mut().filter(|_| concerns_table) {
        direct.compare();
    }
}

/// Lets nodes hand packets on for a while after the end of the daemon: an update of it takes less
/// time, and nobody updates the table any more.
pub(super) async fn end<K: Kernel + Send + 'static>(
    engine: &Engine,
    writer: &Writer<K>,
) -> Result<(), WriterGone> {
    let end = SystemTime::now() + LIFETIME;
    let Some(ending) = engine.direct().and_then(|direct| direct.ending(end)) else {
        return Ok(());
    };
    let committed = writer.run(move |kernel| kernel.commit(&ending).map(drop)).await?;
    if let Err(error) = committed {
        tracing::warn!("table direct-return stays in use until the next start: {error}");
    }
    Ok(())
}

/// Reads the table, by another socket if there is one, so that commits do not wait.
fn read_by<K: Kernel + Send + 'static>(
    reader: Option<Writer<K>>,
    writer: &Writer<K>,
) -> BoxFuture<'static, Result<Result<Found, ReadError>, WriterGone>> {
    let found = reader.as_ref().unwrap_or(writer).run(read);
    let reading = async move {
        let found = found.await;
        // Its thread ends with this handle.
        drop(reader);
        found
    };
    reading.boxed()
}
