//! The log: lines on standard error.
//!
//! The daemon never blocks on a reader: its lines pass through a [`LineQueue`]. Other commands
//! write directly, so that a slow reader gets every line.

use std::fmt::Display;
use std::io::{self, Write};
use std::panic;

use daemon::config::LogSettings;
use daemon::config::log::LogFormat;
use daemon::observe::Observe;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::MakeWriter;

use super::line_queue::LineQueue;

/// Libraries that log each failure, which we report less often, or whole bodies of answers.
const QUIET: [&str; 2] = ["kube_client=off", "kube_runtime=off"];

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
        start(settings, io::stderr);
        Self::Direct
    }

    /// Starts the log of the daemon. `observe` counts dropped lines.
    ///
    /// # Errors
    /// Errors of starting a thread.
    pub fn start_queued(settings: LogSettings, observe: Observe) -> io::Result<Self> {
        let queue = LineQueue::spawn(io::stderr(), observe)?;
        let writer = queue.clone();
        start(settings, move || writer.clone());
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

fn start<W>(settings: LogSettings, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter =
        EnvFilter::builder().with_default_directive(settings.level.into()).from_env_lossy();
    let quiet = QUIET.iter().filter_map(|text| text.parse::<Directive>().ok());
    let filter = quiet.fold(filter, EnvFilter::add_directive);
    // Internal errors would be reported by `eprintln!`, which can block or panic.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    let log = log.with_env_filter(filter).with_writer(writer);
    // A second start, in a test, keeps the first log.
    let _ = match settings.format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}
