//! The command line of deltaproxy: its commands and their flags.

#![allow(missing_docs, reason = "documentation here is the text of help and manual")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use daemon::config::flags::{OnceFlags, RunFlags, VerifyFlags};

#[cfg(feature = "measure")]
use super::{BENCH_ROWS, BenchFlags, PROBE_HELP, ProbeFlags};
use super::{CleanupFlags, Output, PLAN_CODES, VERIFY_CODES};
#[cfg(feature = "inspect")]
use super::{EXPLAIN_CODES, ExplainFlags, SHOW_HELP, ShowFlags, TOP_HELP, TopFlags};

/// A kube-proxy that sends the kernel only what changed, through netlink.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the API server or manifest files and keep the node's tables up to date
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
    /// Compare the tables with the objects; the exit code says whether they differ
    #[command(after_help = VERIFY_CODES)]
    Verify {
        #[command(flatten)]
        flags: VerifyFlags,
        /// How the differences are printed
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Say where a packet goes, and why, by the rules that the kernel has; no daemon is needed
    #[cfg(feature = "inspect")]
    #[command(after_help = EXPLAIN_CODES)]
    Explain(ExplainFlags),
    /// Remove both tables, also what is left of them beside another kube-proxy
    Cleanup(CleanupFlags),
    /// Show services as the kernel has them, with endpoints and connections; needs no daemon
    #[cfg(feature = "inspect")]
    #[command(after_long_help = SHOW_HELP)]
    Show(ShowFlags),
    /// Follow changes, latency, busiest services and problems of this node in the terminal
    #[cfg(feature = "inspect")]
    #[command(after_long_help = TOP_HELP)]
    Top(TopFlags),
    /// Look at a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure what changes cost on this machine, in a network namespace of its own
    #[cfg(feature = "measure")]
    #[command(args_conflicts_with_subcommands = true, after_long_help = BENCH_ROWS)]
    Bench(BenchFlags),
    /// Measure rule sync of the kube-proxy that runs on this node, whichever it is
    #[cfg(feature = "measure")]
    #[command(after_long_help = PROBE_HELP)]
    Probe(ProbeFlags),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a KubeProxyConfiguration with all defaults, and name the fields without effect
    Check {
        /// The file
        file: PathBuf,
    },
}
