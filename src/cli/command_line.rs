//! The command line of deltaproxy: its commands and their flags.

#![allow(missing_docs, reason = "documentation here is the text of help and manual")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::{BENCH_ROWS, BenchFlags, Output, PLAN_CODES};
use crate::config::flags::{OnceFlags, RunFlags};

/// A kube-proxy that sends the kernel only what changed, through netlink.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Follow the API server or manifest files and keep the node's tables right
    Run(RunFlags),
    /// Make the tables what the manifests say, once
    Apply {
        #[command(flatten)]
        flags: OnceFlags,
        /// How the summary is printed
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Show what `apply` would do, changing nothing; the exit code says whether it would do something
    #[command(after_help = PLAN_CODES)]
    Plan {
        #[command(flatten)]
        flags: OnceFlags,
        /// How the changes are printed
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Remove both tables, and what kube-proxy left in other modes
    Cleanup,
    /// Look at a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure what changes cost on this machine, in a network namespace of its own
    #[command(args_conflicts_with_subcommands = true, after_long_help = BENCH_ROWS)]
    Bench(BenchFlags),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a KubeProxyConfiguration with all defaults, and name the fields without effect
    Check {
        /// The file
        file: PathBuf,
    },
}
