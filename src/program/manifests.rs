//! Loads manifests into an engine, for commands that read them once.

use std::path::Path;

use daemon::source::Wanted;
use daemon::source::addresses::local_addresses;
use daemon::source::files::ManifestReader;
use engine::Engine;
use engine::printable::Printable;

use super::failure::Failure;

/// The manifests of one command.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// A file or directory.
    pub path: &'a Path,
    /// What this node needs of them.
    pub wanted: Wanted<'a>,
    /// Accept manifests without a usable object, which remove every service.
    pub allow_empty: bool,
}

/// Reads the manifests. Returns the parts that were left out, and logs the number of ignored
/// objects.
pub(super) fn load(engine: &mut Engine, input: &Input<'_>) -> Result<Vec<String>, Failure> {
    let path = input.path;
    let update = ManifestReader::of(input.wanted).load(path).map_err(Failure::new)?;
    let mut problems: Vec<_> = update.problems.iter().map(ToString::to_string).collect();
    if !update.ignored.is_empty() {
        tracing::info!("{}", update.ignored);
    }
    if update.usable == 0 && !input.allow_empty {
        let path = Printable(path.display());
        problems.push(format!(
            "{path}: no usable Service, EndpointSlice or ServiceCIDR, and no Node of this name: \
             nothing is changed; --allow-empty removes every service"
        ));
        return Err(Failure::of_lines(problems));
    }
    engine.set_local_addresses(local_addresses().map_err(Failure::new)?);
    engine.apply(update.events);
    if let Some(closed) = engine.node().closed_node_ports() {
        tracing::info!("{closed}");
    }
    Ok(problems)
}
