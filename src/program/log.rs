//! The log: lines on standard error.
//!
//! The daemon never blocks on a reader: its lines pass through a [`LineQueue`]. Other commands
//! write directly, so that a slow reader gets every line.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic;

use daemon::config::log::LogFormat;
use daemon::config::{Config, Loaded, LogSettings};
use daemon::observe::Observe;
use engine::printable::Printable;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::line_queue::LineQueue;
use super::log_rates::LogRates;

/// Logs the notes of a configuration and returns it.
pub fn noted(Loaded { config, notes, .. }: Loaded) -> Config {
    for line in notes.lines() {
        tracing::warn!("{}", Printable(line));
    }
    config
}

/// Libraries that log each failure, which we report less often, or whole bodies of answers.
const QUIET: [&str; 2] = ["kube_client", "kube_runtime"];

/// Beginning of the names of our crates that log.
const OURS: &str = "deltaproxy";

/// Environment variable with levels by module.
const LEVELS: &str = "RUST_LOG";

/// Path of lines to standard error.
#[derive(Debug)]
pub enum Log {
    /// Lines are written immediately.
    Direct,
    /// Lines are queued, or dropped and counted.
    Queued(LineQueue),
}

impl Log {
    /// Starts the log of a command that ends by itself; `RUST_LOG` extends the settings.
    pub fn start(settings: LogSettings) -> Self {
        start(settings, io::stderr, None);
        Self::Direct
    }

    /// Starts the log of the daemon. `observe` counts dropped lines.
    ///
    /// # Errors
    /// Errors of starting a thread.
    pub fn start_queued(settings: LogSettings, observe: Observe) -> io::Result<Self> {
        let rates = LogRates::new(observe.clone());
        let queue = LineQueue::spawn(io::stderr(), observe)?;
        let writer = queue.clone();
        start(settings, move || writer.clone(), Some(rates));
        let last = queue.clone();
        // The hook of std writes to standard error and blocks until it can.
        panic::set_hook(Box::new(move |panic| {
            tracing::error!("{panic}");
            last.flush();
        }));
        Ok(Self::Queued(queue))
    }

    /// Writes the queued lines and a last one. Gives up if standard error is not read.
    pub fn end(self, failure: Option<impl Display>) {
        match (self, failure) {
            (Self::Direct, None) => {}
            (Self::Direct, Some(failure)) => {
                // `eprintln!` panics if standard error is closed.
                let _ = writeln!(io::stderr(), "{failure}");
            }
            (Self::Queued(queue), failure) => {
                if let Some(failure) = failure {
                    queue.push(format!("{failure}\n").into_bytes());
                }
                queue.flush();
            }
        }
    }
}

fn start<W>(settings: LogSettings, writer: W, rates: Option<LogRates>)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let directives = env::var(LEVELS).unwrap_or_default();
    let (filter, invalid) = filter(settings.level, &directives);
    // Internal errors would be reported by `eprintln!`, which can block or panic.
    let log = fmt::layer().log_internal_errors(false).with_writer(writer);
    let log = match settings.format {
        LogFormat::Text => log.with_target(false).boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    // A second start, in a test, keeps the first log.
    let log = log.with_filter(filter.and(rates));
    let _ = tracing_subscriber::registry().with(log).try_init();
    for directive in invalid {
        tracing::warn!("{LEVELS}: {} is not MODULE=LEVEL or LEVEL", Printable(directive));
    }
}

/// Returns the filter of the comma-separated `directives`, and those that are invalid. Our modules
/// that none of them names have `level`; those of libraries do not log more than warnings.
fn filter(level: LevelFilter, directives: &str) -> (Targets, Vec<&str>) {
    let (mut named, mut invalid) = (Vec::new(), Vec::new());
    let (mut ours, mut of_libraries) = (level, level.min(LevelFilter::WARN));
    for directive in directives.split(',').filter(|it| !it.is_empty()) {
        match directive.parse::<Targets>() {
            Ok(levels) => {
                named.extend(levels.iter().map(|(module, it)| (module.to_owned(), it)));
                if let Some(level) = levels.default_level() {
                    (ours, of_libraries) = (level, level);
                }
            }
            Err(_) => invalid.push(directive),
        }
    }
    let filter = Targets::new().with_default(of_libraries).with_target(OURS, ours);
    let filter = filter.with_targets(named);
    (filter.with_targets(QUIET.map(|library| (library, LevelFilter::OFF))), invalid)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn rust_log_adds_levels_by_module_and_names_what_is_invalid() {
        let (filter, invalid) =
            filter(LevelFilter::INFO, "deltaproxy_daemon::source=debug,what=ever");
        let levels = [
            ("deltaproxy_daemon::source::kube", Level::DEBUG, true),
            ("deltaproxy_daemon::run", Level::DEBUG, false),
            ("deltaproxy_daemon::run", Level::INFO, true),
            ("kube_client", Level::ERROR, false),
            ("hyper_util::client", Level::WARN, true),
            ("hyper_util::client", Level::INFO, false),
        ];
        for (module, level, is_enabled) in levels {
            assert_eq!(filter.would_enable(module, &level), is_enabled, "{module} {level}");
        }
        assert_eq!(invalid, ["what=ever"]);
    }

    #[test]
    fn a_level_of_the_settings_is_that_of_our_crates() {
        let (filter, _) = filter(LevelFilter::TRACE, "");
        for module in ["deltaproxy", "deltaproxy_daemon::run", "deltaproxy_measure"] {
            assert!(filter.would_enable(module, &Level::TRACE), "{module}");
        }
        for module in ["hyper", "rustls::client", "tower::buffer", "tokio", "want"] {
            assert!(!filter.would_enable(module, &Level::INFO), "{module}");
        }
    }

    #[test]
    fn a_level_alone_replaces_that_of_the_settings() {
        let (filter, invalid) = filter(LevelFilter::INFO, "debug");
        assert!(filter.would_enable("deltaproxy_daemon::run", &Level::DEBUG) && invalid.is_empty());
        assert!(filter.would_enable("hyper", &Level::DEBUG), "of libraries too");
    }
}
