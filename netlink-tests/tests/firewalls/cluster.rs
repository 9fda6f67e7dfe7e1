//! A node with services, its daemon, and the state of its tables.

use netlink_tests::scenario::{
    EXTERNAL, Lab, Manifests, NODE_PORT, Node, ServiceCidr, WEB, routing, slice, web_everywhere,
};
use netlink_tests::{Answer, Host, Process, eventually, kernel_has_owners};
use nix::sys::signal::Signal;

use crate::machine::{Machine, SOON};

/// The ways to the service `web`, whose endpoints are `a` on the node and `c` on another one: the
/// client and the address.
pub(crate) const WAYS: [(&str, &str); 4] =
    [("pod", WEB), ("node", WEB), ("outside", NODE_PORT), ("outside", EXTERNAL)];

/// The state of our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    Owned,
    WithoutOwner,
    /// Their daemon was killed.
    Orphaned,
}

impl Tables {
    pub(crate) const ALL: [Self; 3] = [Self::Owned, Self::WithoutOwner, Self::Orphaned];
}

pub(crate) struct Cluster {
    pub(crate) lab: Lab,
    pub(crate) manifests: Manifests,
    pub(crate) machine: Machine,
    tables: Tables,
    daemon: Option<Process>,
}

impl Cluster {
    #[track_caller]
    pub(crate) fn new(tables: Tables) -> Self {
        let lab = Lab::without_objects(routing());
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let manifests = Manifests::new(&[
            ("cidr", &cidrs),
            ("node", &Node::new()),
            ("web", &web_everywhere()),
            ("slice", &slice("a c")),
        ]);
        let machine = Machine::new(lab.world.node());
        let mut cluster = Self { lab, manifests, machine, tables, daemon: None };
        cluster.start();
        if tables == Tables::Orphaned {
            let daemon = cluster.daemon.take().unwrap();
            daemon.signal(Signal::SIGKILL);
            let _ = daemon.finish(SOON);
            let added = cluster.machine.output("nft add table ip kube-proxy");
            assert_eq!(added.stderr.contains("Operation not supported"), kernel_has_owners());
        }
        cluster.check("before");
        cluster
    }

    pub(crate) fn node(&self) -> &Host {
        self.lab.world.node()
    }

    pub(crate) fn host(&self, name: &str) -> Host {
        self.lab.world.host(name).hasty()
    }

    #[track_caller]
    fn start(&mut self) {
        let ownership = match self.tables {
            Tables::WithoutOwner => "--table-ownership=off",
            Tables::Owned | Tables::Orphaned => "--table-ownership=on",
        };
        let options = ["--healthz-bind-address=", "--metrics-bind-address=", ownership];
        self.daemon = Some(self.manifests.run_with(self.node(), &options));
        self.check("the start");
    }

    /// A daemon takes the tables over, also those of one that was killed.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.terminate(SOON);
        }
        self.start();
    }

    /// Whether a connection of this client is answered.
    pub(crate) fn answers(&self, client: &str, to: &str) -> bool {
        matches!(self.host(client).connect_tcp(to), Answer::From { .. })
    }

    /// The ways that are answered.
    pub(crate) fn open_ways(&self) -> Vec<(&'static str, &'static str)> {
        WAYS.into_iter().filter(|(client, to)| self.answers(client, to)).collect()
    }

    /// Waits until the tables are as the objects want them and all ways are answered.
    #[track_caller]
    pub(crate) fn check(&self, after: &str) {
        let what = format!("{:?}, {after}: all ways are answered", self.tables);
        eventually(&what, SOON, || (self.open_ways() == WAYS).then_some(()));
        self.check_tables(after);
    }

    /// The tables are as the objects want them, with the same owner as before.
    #[track_caller]
    pub(crate) fn check_tables(&self, after: &str) {
        let verified = self.manifests.once(self.node(), "verify");
        let of = format!("{:?}, {after}", self.tables);
        assert_eq!(verified.code(), Some(0), "{of}: {}{}", verified.stdout, verified.stderr);
    }
}
