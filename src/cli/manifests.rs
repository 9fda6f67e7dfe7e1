//! Manifests into an engine, for commands that read them once.

use std::path::Path;

use super::Failure;
use crate::engine::Engine;
use crate::source::addresses::local_addresses;
use crate::source::files::ManifestReader;

/// Reads the manifests at `path` for the node of that name; returns what of them was left out.
pub(super) fn load(engine: &mut Engine, path: &Path, node: &str) -> Result<Vec<String>, Failure> {
    let update = ManifestReader::new(node).load(path).map_err(Failure::new)?;
    let problems = update.problems.iter().map(ToString::to_string).collect();
    engine.set_local_addresses(local_addresses().map_err(Failure::new)?);
    engine.apply(update.events);
    if let Some(closed) = engine.closed_node_ports() {
        tracing::info!("{closed}");
    }
    Ok(problems)
}
