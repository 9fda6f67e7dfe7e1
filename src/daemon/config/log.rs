//! Level and format of the log.

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;

/// Flags about the log. An absent flag leaves the setting of the configuration file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct LogFlags {
    /// Log level: error, warn, info, debug, trace, or kube-proxy's 0 (info) to 6 (trace)
    /// [default: info]
    #[arg(short = 'v', long, value_name = "LEVEL", value_parser = level)]
    pub log_level: Option<LevelFilter>,
    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

engine::named! {
    /// Format of log lines.
    #[derive(Default, ValueEnum)]
    pub enum LogFormat {
        /// Lines for people.
        #[default]
        Text = "text",
        /// One JSON object for each line.
        Json = "json",
    }
}

/// Level and format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// Least important level that is logged.
    pub level: LevelFilter,
    /// Format of lines.
    pub format: LogFormat,
}

impl LogFlags {
    /// Returns the flags, with settings of `file` where they are absent.
    pub fn or(self, file: Self) -> LogSettings {
        LogSettings {
            level: self.log_level.or(file.log_level).unwrap_or(LevelFilter::INFO),
            format: self.log_format.or(file.log_format).unwrap_or_default(),
        }
    }
}

impl LogSettings {
    /// Returns `logging.verbosity` and `logging.format` of a KubeProxyConfiguration.
    pub(super) fn fields(self) -> (u32, &'static str) {
        let verbosity = match self.level {
            LevelFilter::TRACE => 6,
            LevelFilter::DEBUG => 4,
            _ => 0,
        };
        (verbosity, self.format.name())
    }
}

impl LogFormat {
    /// Parses the name of a format.
    pub(super) fn parse(name: &str) -> Result<Self, &'static str> {
        Self::from_str(name, false).map_err(|_| "text or json")
    }
}

/// Error: unknown level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Self::EXPECTED)]
pub(super) struct LevelError;

impl LevelError {
    /// What is expected instead.
    pub(super) const EXPECTED: &str = "error, warn, info, debug, trace, or a number from 0";
}

pub(super) fn level(text: &str) -> Result<LevelFilter, LevelError> {
    match text {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => match text.parse() {
            Ok(verbosity) if verbosity <= i32::MAX.unsigned_abs() => Ok(of_verbosity(verbosity)),
            _ => Err(LevelError),
        },
    }
}

/// Returns the level for kube-proxy's verbosity.
pub(super) fn of_verbosity(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4 | 5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}
