//! One file per command.
//!
//! A command prints its result on standard output and errors on standard error, one line each. Its
//! exit code is 0 only if everything requested was done; `plan` and `verify` use those of diff(1).

#[cfg(feature = "api-server")]
mod api_server;
#[cfg(not(feature = "api-server"))]
#[path = "no_api_server.rs"]
mod api_server;
mod apply;
#[cfg(feature = "measure")]
mod bench;
mod change;
mod check_config;
mod cleanup;
mod command_line;
mod counts;
#[cfg(feature = "inspect")]
mod explain;
mod flagz;
mod kube_proxy;
mod line_queue;
#[cfg(feature = "inspect")]
mod live_trace;
mod localhost;
mod log;
mod manifests;
mod node;
mod outcome;
mod plan;
#[cfg(feature = "measure")]
mod probe;
mod read_tables;
mod reload;
mod run;
mod running;
mod search;
mod settings;
#[cfg(feature = "inspect")]
mod show;
mod summary;
#[cfg(feature = "inspect")]
mod top;
mod verify;

pub use api_server::is_in_pod;
pub use apply::apply;
#[cfg(feature = "measure")]
pub use bench::{BENCH_ROWS, BenchFlags, bench};
pub use check_config::check_config;
pub use cleanup::{CleanupFlags, cleanup};
pub use command_line::{Cli, Command, ConfigCommand};
#[cfg(feature = "inspect")]
pub use explain::{EXPLAIN_CODES, ExplainFlags, Explained, explain};
pub use flagz::listed_flags;
pub use kube_proxy::kube_proxy;
pub use log::Log;
pub use manifests::Input;
pub use outcome::{
    APPLY_CODES, CHECK_CODES, CLEANUP_CODES, Compared, Exit, PLAN_CODES, VERIFY_CODES,
};
pub use plan::plan;
#[cfg(feature = "measure")]
pub use probe::{PROBE_HELP, ProbeFlags, probe};
pub use reload::{Load, restart};
pub use run::{End, run};
pub use settings::{Origin, Settings};
#[cfg(feature = "inspect")]
pub use show::{SHOW_HELP, ShowFlags, Shown, show};
pub use summary::Summary;
#[cfg(feature = "inspect")]
pub use top::{TOP_HELP, TopFlags, top};
pub use verify::verify;

use std::error::Error;
use std::fmt;
use std::io::Write;

use daemon::config::{Config, ConfigError, Loaded};
use engine::printable::Printable;

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Text.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Failure of a command: lines for standard error, without control characters.
#[derive(Debug)]
pub struct Failure(Vec<String>);

impl Failure {
    /// Returns the failure of a command that `error` stopped.
    pub fn new(error: impl Error) -> Self {
        Self(vec![error.to_string()])
    }

    /// Returns the failure of a command whose configuration is invalid, with a line for each
    /// error.
    pub fn of_config(error: &ConfigError) -> Self {
        Self(error.messages())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter().map(Printable);
        lines.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        lines.try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl Error for Failure {}

/// Logs the notes of a configuration and returns it.
pub fn noted(Loaded { config, notes }: Loaded) -> Config {
    notes.lines().iter().for_each(|line| tracing::warn!("{}", Printable(line)));
    config
}

/// Fails if anything was left out.
fn left_out(problems: &[String]) -> Result<(), Failure> {
    match problems {
        [] => Ok(()),
        problems => Err(Failure(problems.to_vec())),
    }
}

/// Prints to standard output. A closed reader is not an error.
fn print(text: &dyn fmt::Display) {
    let _ = write!(std::io::stdout().lock(), "{text}");
}
