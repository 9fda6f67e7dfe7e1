//! The nodes, with a daemon and a folder of manifests each.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::NamedTempFile;
use test_hosts::{Finished, Host, NODES, Process, Server, Switched, deltaproxy_binary};

use super::objects::node;
use crate::scenario::{Manifests, Object};

/// The port of the pods.
pub const PORT: u16 = 8080;

/// How long a condition may take, on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// The nodes, their manifests and their daemons.
#[derive(Debug)]
pub struct Cluster {
    // The daemons end before their files and hosts go.
    daemons: [Option<Process>; 3],
    /// The hosts.
    pub link: Switched,
    folders: [Manifests; 3],
    config: NamedTempFile,
    _servers: Vec<Server>,
    /// The next port of a client.
    pub(super) next_port: AtomicU16,
}

impl Cluster {
    /// Starts the daemons, with the Node objects of all nodes and these fields of
    /// `deltaproxy.directReturn`, such as `mode: annotated`.
    #[must_use]
    #[track_caller]
    pub fn new(direct_return: &str) -> Self {
        Self::on(Switched::new(), &format!("directReturn: {{{direct_return}}}"))
    }

    /// Starts the daemons of the nodes of a link, with these fields of `deltaproxy`.
    #[must_use]
    #[track_caller]
    pub fn on(link: Switched, settings: &str) -> Self {
        let mut cluster = Self::prepared(link, settings);
        (0..NODES.len()).for_each(|place| cluster.start(place));
        cluster
    }

    /// The same as [`Self::new`] before any daemon is started.
    #[must_use]
    #[track_caller]
    pub fn without_daemons(direct_return: &str) -> Self {
        Self::prepared(Switched::new(), &format!("directReturn: {{{direct_return}}}"))
    }

    #[track_caller]
    fn prepared(link: Switched, settings: &str) -> Self {
        let servers = (0..NODES.len()).flat_map(|place| serve(&link, place)).collect();
        let mut config = NamedTempFile::new().expect("a temporary file");
        config.write_all(configuration(settings).as_bytes()).expect("a temporary file");
        let cluster = Self {
            link,
            folders: [(); 3].map(|()| Manifests::new(&[])),
            config,
            daemons: [const { None }; 3],
            _servers: servers,
            next_port: AtomicU16::new(FIRST_PORT),
        };
        for (place, name) in NODES.into_iter().enumerate() {
            cluster.apply(name, &node(place));
        }
        cluster
    }

    /// Starts the daemon of a node.
    #[track_caller]
    pub fn start(&mut self, place: usize) {
        let folder =
            self.folders[place].path().to_str().expect("temporary folders have plain names");
        let config = self.config.path().to_str().expect("temporary files have plain names");
        let arguments =
            ["run", "--manifests", folder, "--hostname-override", NODES[place], "--config", config];
        let mut daemon = self.node(place).spawn(deltaproxy_binary(), &arguments);
        // A service that was there before is learned for a while.
        daemon.wait_for_line("the tables are complete", SOON);
        self.daemons[place] = Some(daemon);
    }

    /// Replaces the fields of `deltaproxy`, which running daemons notice.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[track_caller]
    pub fn configure(&self, settings: &str) {
        fs::write(self.config.path(), configuration(settings)).expect("a temporary file");
    }

    /// Ends the daemon of a node by SIGKILL.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn kill(&mut self, place: usize) {
        let daemon = self.daemons[place].take().expect("a running daemon");
        daemon.signal(Signal::SIGKILL);
        let _ = daemon.finish(SOON);
    }

    /// Ends the daemon of a node by SIGTERM; returns its output.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn stop(&mut self, place: usize) -> Finished {
        self.daemons[place].take().expect("a running daemon").terminate(SOON)
    }

    /// The running daemon of a node.
    ///
    /// # Panics
    /// When it does not run.
    #[track_caller]
    pub fn daemon(&mut self, place: usize) -> &mut Process {
        self.daemons[place].as_mut().expect("a running daemon")
    }

    /// The places of the nodes with a daemon.
    #[must_use]
    pub fn running(&self) -> Vec<usize> {
        (0..NODES.len()).filter(|place| self.daemons[*place].is_some()).collect()
    }

    /// Writes a file of one object on all nodes.
    #[track_caller]
    pub fn apply(&self, file: &str, object: &dyn Object) {
        self.folders.iter().for_each(|folder| folder.write(file, object));
    }

    /// Writes a file of one object on one node, whose view of the cluster differs from then on.
    #[track_caller]
    pub fn apply_at(&self, place: usize, file: &str, object: &dyn Object) {
        self.folders[place].write(file, object);
    }

    /// Removes a file on all nodes.
    #[track_caller]
    pub fn remove(&self, file: &str) {
        self.folders.iter().for_each(|folder| folder.remove(file));
    }

    /// The node at this place of [`NODES`].
    #[must_use]
    pub fn node(&self, place: usize) -> &Host {
        self.link.node(place)
    }

    /// Runs a command that reads the manifests of a node, with the configuration of its daemon;
    /// returns its output.
    ///
    /// # Panics
    /// When the system's temporary folder has no plain name.
    #[track_caller]
    pub fn on_manifests(&self, place: usize, command: &str, more: &[&str]) -> Finished {
        let config = self.config.path().to_str().expect("temporary files have plain names");
        self.without_config(place, command, &[&["--config", config], more].concat())
    }

    /// The same without a configuration, so with direct return off.
    ///
    /// # Panics
    /// When the system's temporary folder has no plain name.
    #[track_caller]
    pub fn without_config(&self, place: usize, command: &str, more: &[&str]) -> Finished {
        let folder = self.folders[place].path().to_str();
        let folder = folder.expect("temporary folders have plain names");
        let arguments = [command, "--manifests", folder, "--hostname-override", NODES[place]];
        self.command(place, &[&arguments[..], more].concat())
    }

    /// Runs a command of the program on a node; returns its output.
    #[track_caller]
    pub fn command(&self, place: usize, arguments: &[&str]) -> Finished {
        self.node(place).output(deltaproxy_binary(), arguments)
    }
}

/// The names of the servers on a node are its letter and a number.
fn serve(link: &Switched, place: usize) -> Vec<Server> {
    let letter = NODES[place].rsplit('-').next().unwrap_or_default();
    let pods = link.pods(place).iter().zip(1..);
    pods.flat_map(|(pod, number)| {
        let name = format!("{letter}{number}");
        [pod.serve_tcp(PORT, &name), pod.serve_udp(PORT, &name), pod.serve_sctp(PORT, &name)]
    })
    .collect()
}

fn configuration(settings: &str) -> String {
    let mut text = String::new();
    let lines = [
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
        "kind: KubeProxyConfiguration",
        "mode: nftables",
        "clusterCIDR: 10.244.0.0/16,fd00:10:244::/48",
    ];
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "deltaproxy: {{{settings}}}");
    text
}

/// Above every port that pods serve on.
const FIRST_PORT: u16 = 10_000;
