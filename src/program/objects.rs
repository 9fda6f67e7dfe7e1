//! Loads the objects of a configuration's source into an engine, for commands that end by themselves.

use daemon::config::{Config, Source};
use daemon::source::Wanted;
use engine::Engine;

use super::api_server::Followed;
use super::failure::Failure;
use super::manifests::{Input, load};

/// Returns the API server, if that is the source, and the parts of manifests that were left out.
pub(super) fn load_objects(
    engine: &mut Engine,
    config: &Config,
    allow_empty: bool,
) -> Result<(Option<Followed>, Vec<String>), Failure> {
    match &config.source {
        Source::Manifests(path) => {
            let wanted = Wanted::new(&config.node_name, &config.routing);
            let input = Input { path, wanted, allow_empty };
            Ok((None, load(engine, &input)?))
        }
        Source::Kubeconfig(_) | Source::InCluster | Source::Server { .. } => {
            Ok((Some(Followed::start(config, engine)?), Vec::new()))
        }
    }
}
