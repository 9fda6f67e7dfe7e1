//! Loads manifests into an engine, for commands that read them once.

use std::path::Path;

use daemon::config::Config;
use daemon::source::Wanted;
use daemon::source::addresses::local_addresses;
use daemon::source::files::ManifestReader;
use engine::Engine;
use engine::printable::Printable;

use super::failure::Failure;

/// Reads manifests, a file or directory. Without a usable object, which would remove every service,
/// they are an error unless `allow_empty`. Returns the parts that were left out, and logs the number
/// of ignored objects.
pub(super) fn load(
    engine: &mut Engine,
    config: &Config,
    path: &Path,
    allow_empty: bool,
) -> Result<Vec<String>, Failure> {
    let wanted = Wanted::new(&config.node_name, &config.routing);
    let update = ManifestReader::of(wanted).load(path).map_err(Failure::new)?;
    let mut problems: Vec<_> = update.problems.iter().map(ToString::to_string).collect();
    if !update.ignored.is_empty() {
        tracing::info!("{}", update.ignored);
    }
    if update.usable == 0 && !allow_empty {
        let path = Printable(path.display());
        problems.push(format!(
            "{path}: no usable Service, EndpointSlice or ServiceCIDR, and no Node of this name: \
             nothing is changed; --allow-empty removes every service"
        ));
        return Err(Failure::of_lines(problems));
    }
    engine.set_local_addresses(local_addresses().map_err(Failure::new)?);
    engine.apply(update.events);
    if let Some(closed) = engine.node().closed_node_ports {
        tracing::info!("{closed}");
    }
    Ok(problems)
}
