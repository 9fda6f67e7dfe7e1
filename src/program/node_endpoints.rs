//! The endpoints on a node, for `show --node`.
//!
//! Neither the tables nor the daemon have names of nodes, so that no endpoint takes memory for one.
//! This command reads all objects as if it ran on that node: its endpoints are the local ones.

use std::path::PathBuf;

use clap::Args;
use daemon::config::Source;
use daemon::config::command_flags::{NodeFlags, SourceFlags, VerifyFlags};
use engine::Engine;
use engine::printable::Printable;
use inspect::show::OfServices;
use nft::TableFlags;

use super::api_server::is_in_pod;
use super::failure::Failure;
use super::objects::load_objects;
use super::running::Running;

/// The node, and where its endpoints are read.
#[derive(Clone, Debug, Args)]
pub(crate) struct OfNodeFlags {
    /// Show only services with an endpoint on this node; the objects are those of the running daemon's
    /// API server, unless --kubeconfig or --manifests is given
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Kubeconfig file of the API server for --node
    #[arg(long, value_name = "FILE", requires = "node", conflicts_with = "manifests")]
    kubeconfig: Option<PathBuf>,
    /// File or folder of manifests for --node, instead of an API server
    #[arg(long, value_name = "PATH", requires = "node")]
    manifests: Option<PathBuf>,
}

impl OfNodeFlags {
    /// Reads the endpoints of the node; `None` without `--node`.
    ///
    /// # Errors
    /// The objects cannot be read, or there is neither such a node nor an endpoint on it.
    pub(super) fn endpoints(&self) -> Result<Option<OfServices>, Failure> {
        let Some(node) = &self.node else { return Ok(None) };
        self.of_node(node).map(Some).map_err(|error| Failure::new(format!("--node: {error}")))
    }

    fn of_node(&self, node: &str) -> Result<OfServices, Failure> {
        let config = self.verify_flags(node).load(self.running()?.as_ref());
        let config = config.map_err(|error| Failure::of_config(&error))?.config;
        let mut engine = Engine::new(config.routing.clone(), TableFlags::default());
        load_objects(&mut engine, &config, true)?;
        let cluster = engine.cluster();
        let endpoints: OfServices =
            cluster.local_endpoints().map(|(name, address)| (name.as_str(), address)).collect();
        let has_node = cluster.node().is_some_and(|it| it.name.parts().1 == config.node_name);
        if endpoints.is_empty() && !has_node {
            let source = match &config.source {
                Source::Manifests(path) => path.display().to_string(),
                Source::Kubeconfig(_) | Source::InCluster | Source::Server { .. } => {
                    "the API server".to_owned()
                }
            };
            return Err(Failure::new(format!(
                "{} has no Node {}, and no endpoint on it",
                Printable(&source),
                Printable(node)
            )));
        }
        Ok(endpoints)
    }

    /// Returns the configuration of the running daemon; `None` if the flags replace it.
    fn running(&self) -> Result<Option<serde_json::Value>, Failure> {
        if self.kubeconfig.is_some() || self.manifests.is_some() {
            return Ok(None);
        }
        match Running::find()? {
            Some(running) => Ok(Some(running.configuration)),
            None if is_in_pod() => Ok(None),
            None => Err(Failure::new(
                "no daemon runs in this network namespace: give --kubeconfig FILE or \
                 --manifests PATH",
            )),
        }
    }

    fn verify_flags(&self, node: &str) -> VerifyFlags {
        let mut flags = NodeFlags::default();
        flags.hostname_override = Some(node.to_owned());
        let (kubeconfig, manifests) = (self.kubeconfig.clone(), self.manifests.clone());
        VerifyFlags {
            source: SourceFlags { manifests, kubeconfig },
            node: flags,
            ..VerifyFlags::default()
        }
    }
}
