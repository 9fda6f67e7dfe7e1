//! The engine of a command that ends by itself, beside the kernel: with the objects of the source.

use daemon::config::{Config, Source};
use engine::Engine;
use nft::TableFlags;
use nft::kernel::Nftables;

use super::api_server::Followed;
use super::failure::Failure;
use super::localhost;
use super::manifests::load;
use super::settings::Settings;

/// An engine with all objects, and the kernel whose tables it computes.
pub(super) struct Loaded {
    pub(super) engine: Engine,
    pub(super) kernel: Nftables,
    /// The API server, if that is the source.
    pub(super) followed: Option<Followed>,
    /// Parts that were left out.
    pub(super) problems: Vec<String>,
}

impl Loaded {
    /// Opens the kernel and reads the objects.
    ///
    /// # Errors
    /// nftables cannot be used, or the objects cannot be read.
    pub(super) fn new(settings: &Settings, allow_empty: bool) -> Result<Self, Failure> {
        let kernel = Nftables::open().map_err(Failure::new)?;
        let mut engine = Engine::new(settings.config.routing.clone(), TableFlags::default());
        engine.suit_kernel(kernel.release());
        let (followed, mut problems) = load_objects(&mut engine, &settings.config, allow_empty)?;
        problems.extend(localhost::check(&mut engine).err());
        Ok(Self { engine, kernel, followed, problems })
    }

    /// Returns the parts that were left out, at the end of the command.
    pub(super) fn left_out(&mut self) -> Vec<String> {
        let mut problems = std::mem::take(&mut self.problems);
        problems.extend(self.followed.take().into_iter().flat_map(Followed::left_out));
        problems.extend(self.engine.take_problems().iter().map(ToString::to_string));
        problems
    }
}

/// Loads the objects of a configuration's source. Returns the API server, if that is the source, and
/// the parts of manifests that were left out.
pub(super) fn load_objects(
    engine: &mut Engine,
    config: &Config,
    allow_empty: bool,
) -> Result<(Option<Followed>, Vec<String>), Failure> {
    if let Source::Manifests(path) = &config.source {
        return Ok((None, load(engine, config, path, allow_empty)?));
    }
    Ok((Some(Followed::start(config, engine)?), Vec::new()))
}
