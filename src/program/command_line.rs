//! The command line of deltaproxy: its commands and their flags.

#![allow(missing_docs, reason = "documentation here is the text of help and manual")]

use clap::{Parser, Subcommand};
use daemon::config::command_flags::{OnceFlags, PlanFlags, RunFlags, VerifyFlags};

#[cfg(feature = "measure")]
use super::bench::{BENCH_ROWS, BenchFlags};
use super::check_config::CheckFlags;
use super::cleanup::CleanupFlags;
#[cfg(feature = "inspect")]
use super::explain::{EXPLAIN_CODES, ExplainFlags};
#[cfg(feature = "inspect")]
use super::history::{HISTORY_HELP, HistoryFlags};
use super::outcome::{APPLY_CODES, CHECK_CODES, CLEANUP_CODES, PLAN_CODES, VERIFY_CODES};
use super::output::Output;
#[cfg(feature = "measure")]
use super::probe::{PROBE_HELP, ProbeFlags};
#[cfg(feature = "inspect")]
use super::problems::{PROBLEMS_HELP, ProblemsFlags};
#[cfg(feature = "inspect")]
use super::show::{SHOW_HELP, ShowFlags};
#[cfg(feature = "inspect")]
use super::top::{TOP_HELP, TopFlags};

/// A kube-proxy that sends the kernel only the changes, over netlink.
#[derive(Debug, Parser)]
#[command(version = env!("DELTAPROXY_VERSION"), max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the API server or manifest files and keep the node's tables up to date
    Run(RunFlags),
    /// Change the tables to match the manifests, once
    #[command(after_help = APPLY_CODES)]
    Apply {
        #[command(flatten)]
        flags: OnceFlags,
        /// Format of the summary
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Print the changes that `apply`, or a daemon with another configuration, would make
    #[command(after_help = PLAN_CODES)]
    Plan {
        #[command(flatten)]
        flags: PlanFlags,
        /// Format of the changes
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Compare the node's tables with the API server's objects, or with manifests
    #[command(after_help = VERIFY_CODES)]
    Verify {
        #[command(flatten)]
        flags: VerifyFlags,
        /// Format of the differences
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// List the services in the kernel, with endpoints and connections; needs no daemon
    #[cfg(feature = "inspect")]
    #[command(after_long_help = SHOW_HELP)]
    Show(ShowFlags),
    /// Show changes, latency, busiest services and problems of this node live in the terminal
    #[cfg(feature = "inspect")]
    #[command(after_long_help = TOP_HELP)]
    Top(TopFlags),
    /// List the latest commits of the running daemon: what changed, when and why
    #[cfg(feature = "inspect")]
    #[command(after_long_help = HISTORY_HELP)]
    History(HistoryFlags),
    /// Follow a packet through the rules in the kernel and explain its path; needs no daemon
    #[cfg(feature = "inspect")]
    #[command(after_help = EXPLAIN_CODES)]
    Explain(ExplainFlags),
    /// List what the running daemon of this node leaves out now, and why
    #[cfg(feature = "inspect")]
    #[command(after_long_help = PROBLEMS_HELP)]
    Problems(ProblemsFlags),
    /// Check a KubeProxyConfiguration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Remove deltaproxy's nftables tables; services stop unless another kube-proxy runs
    #[command(after_help = CLEANUP_CODES)]
    Cleanup(CleanupFlags),
    /// Measure the cost of changes on this machine, in a separate network namespace
    #[cfg(feature = "measure")]
    #[command(args_conflicts_with_subcommands = true, after_long_help = BENCH_ROWS)]
    Bench(BenchFlags),
    /// Measure how long any kube-proxy of this node takes for a change; creates a temporary namespace
    /// in the cluster
    #[cfg(feature = "measure")]
    #[command(after_long_help = PROBE_HELP)]
    Probe(ProbeFlags),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a KubeProxyConfiguration, print it with all defaults, and name the fields without effect
    #[command(after_help = CHECK_CODES)]
    Check(CheckFlags),
}
