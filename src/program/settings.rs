//! The settings with which a command computes the desired tables, and their origin.

use std::fmt;

use daemon::config::changes::FieldChange;
use daemon::config::command_flags::{NodeFlags, OnceFlags, PlanFlags, SettingsOf, VerifyFlags};
use daemon::config::{Config, ConfigError, Loaded, Source};
use engine::Engine;
use serde_json::{Value, json};

use super::failure::Failure;
use super::running::Running;

/// A configuration and its origin.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Its origin.
    pub origin: Origin,
}

/// Origin of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The running daemon.
    Daemon {
        /// Its process; 0 if this command cannot see it.
        process: i32,
        /// The user that it runs as.
        user: u32,
    },
    /// The file of `--config`.
    File(String),
    /// Flags; others have their defaults.
    Flags,
    /// Defaults alone.
    Defaults,
}

impl Settings {
    /// Returns the settings of `apply`: without any in flags, those of a running daemon,
    /// else the defaults.
    ///
    /// # Errors
    /// A flag or file is invalid, or the running daemon does not answer.
    pub fn of_once(flags: &OnceFlags) -> Result<(Loaded, Origin), Failure> {
        choose(&flags.node, flags.settings, Without::Defaults, |running| flags.load(running))
    }

    /// Returns the settings of `verify`: likewise, but with the objects of an API server there are
    /// no defaults.
    ///
    /// # Errors
    /// A flag or file is invalid, or neither flags nor a running daemon have settings.
    pub fn of_verify(flags: &VerifyFlags) -> Result<(Loaded, Origin), Failure> {
        let without = match flags.source.manifests {
            Some(_) => Without::Defaults,
            None => Without::Failure,
        };
        choose(&flags.node, flags.settings, without, |running| flags.load(running))
    }

    /// Returns the settings of `plan`: those of `verify`, and with a file the fields that it would
    /// change of a running daemon.
    ///
    /// # Errors
    /// As for `verify`.
    pub fn of_plan(
        flags: &PlanFlags,
    ) -> Result<(Loaded, Origin, Option<Vec<FieldChange>>), Failure> {
        let file = flags.compared.node.config.as_ref();
        let Some((path, running)) = file.zip(file.and_then(|_| Running::find().transpose())) else {
            let (loaded, origin) = Self::of_verify(&flags.compared)?;
            return Ok((loaded, origin, None));
        };
        let loaded = flags.load_beside(running?.configuration);
        let (loaded, running) = loaded.map_err(|error| Failure::of_config(&error))?;
        let changes = running.changes(&loaded.config);
        Ok((loaded, Origin::File(path.display().to_string()), Some(changes)))
    }

    /// Returns whether the settings are those of a running daemon.
    pub(super) fn are_of_daemon(&self) -> bool {
        matches!(self.origin, Origin::Daemon { .. })
    }

    /// Logs the origin, and whether the node has an object.
    pub(super) fn report(&self, engine: &Engine) {
        let (origin, node) = (&self.origin, &self.config.node_name);
        match (self.finds_node(engine), self.needs_node()) {
            (true, _) => tracing::info!("settings: {origin}; node {node}"),
            (false, false) => {
                tracing::info!(
                    "settings: {origin}; node {node}, for which there is no Node object"
                );
            }
            (false, true) => tracing::warn!(
                "settings: {origin}; node {node}, for which there is no Node object: \
                 --hostname-override gives the name of this machine's"
            ),
        }
    }

    /// Returns the origin and the node for JSON.
    pub(super) fn json(&self, engine: &Engine) -> Value {
        let node = &self.config.node_name;
        let mut json = json!({
            "of": match self.origin {
                Origin::Daemon { .. } => "daemon",
                Origin::File(_) => "file",
                Origin::Flags => "flags",
                Origin::Defaults => "defaults",
            },
            "node": node,
            "nodeFound": self.finds_node(engine),
        });
        if let Origin::Daemon { process, user } = self.origin {
            json["process"] = process.into();
            json["user"] = user.into();
        }
        json
    }

    fn finds_node(&self, engine: &Engine) -> bool {
        let node = engine.cluster().node();
        node.is_some_and(|node| node.name.parts().1 == self.config.node_name)
    }

    /// Returns whether the source always has an object of this node; manifests need none.
    fn needs_node(&self) -> bool {
        !matches!(self.config.source, Source::Manifests(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon { process: 0, user } => {
                write!(f, "those of the running daemon (user {user})")
            }
            Self::Daemon { process, user } => {
                write!(f, "those of the running daemon (process {process}, user {user})")
            }
            Self::File(path) => write!(f, "those of {path}"),
            Self::Flags => f.write_str("those of the flags, with defaults for the others"),
            Self::Defaults => f.write_str("the defaults"),
        }
    }
}

/// What a command does without settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// It uses the defaults, as manifests are for nodes without a daemon too.
    Defaults,
    /// It fails.
    Failure,
}

fn choose(
    node: &NodeFlags,
    wanted: Option<SettingsOf>,
    without: Without,
    load: impl Fn(Option<&Value>) -> Result<Loaded, ConfigError>,
) -> Result<(Loaded, Origin), Failure> {
    let given = match &node.config {
        Some(path) => Some(Origin::File(path.display().to_string())),
        None => node.has_settings().then_some(Origin::Flags),
    };
    let origin = match (given, wanted) {
        (Some(_), Some(SettingsOf::Daemon)) => return Err(Failure::new(CONTRADICTION)),
        (Some(given), _) => given,
        (None, Some(SettingsOf::Flags)) => Origin::Defaults,
        (None, wanted) => match Running::find()? {
            Some(Running { process, user, configuration }) => {
                let loaded =
                    load(Some(&configuration)).map_err(|error| Failure::of_config(&error))?;
                return Ok((loaded, Origin::Daemon { process, user }));
            }
            None if wanted.is_some() || without == Without::Failure => {
                return Err(Failure::new(NONE));
            }
            None => Origin::Defaults,
        },
    };
    Ok((load(None).map_err(|error| Failure::of_config(&error))?, origin))
}

const CONTRADICTION: &str =
    "--settings daemon: other flags have settings too; leave out one or the other";

const NONE: &str = "no daemon runs in this network namespace, so its settings are not known: give \
                    them by --config FILE or flags, or use the defaults by --settings flags";
