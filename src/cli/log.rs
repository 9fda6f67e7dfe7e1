//! The log: lines on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use crate::config::flags::{LogFlags, LogFormat};

/// Libraries that would log what we report ourselves, or whole bodies of answers.
const QUIET: [&str; 2] = ["kube_client=error", "kube_runtime=error"];

/// Starts the log; `RUST_LOG` adds to what the flags say.
pub fn start_log(flags: LogFlags) {
    let filter =
        EnvFilter::builder().with_default_directive(flags.log_level.into()).from_env_lossy();
    let quiet = QUIET.iter().filter_map(|text| text.parse::<Directive>().ok());
    let filter = quiet.fold(filter, EnvFilter::add_directive);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start, in a test, keeps the first log.
    let _ = match flags.log_format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}
