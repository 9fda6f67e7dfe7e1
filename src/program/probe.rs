//! `probe`: measures rule sync of the kube-proxy of this node, from outside.

use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use daemon::config::server_flags::ServerFlags;
use daemon::source::kube::RestClient;
use measure::figures::Progress;
use measure::probe::{self, Left, ProbeError, ProbeReport, ProbeSettings, Testbed};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::api_server::server_of;
use super::bench::{check_writable, write};
use super::failure::Failure;
use super::output::{Output, print, warn_of};
use super::threads;

/// Rows of the table, and exit codes, for `--help`.
pub const PROBE_HELP: &str = "\
A change replaces the endpoint of a Service by another one. Both are listeners of this command on
an address of this node. Connections to the ClusterIP are tried all the time. Times begin before
the request is sent:
  answer of the API server            the request was answered
  event of our watch                  a watch of this command has the change
  commit to nftables                  a notification of a commit that names the new endpoint
                                      whichever program; needs CAP_NET_ADMIN
  first packet at the new endpoint    a new connection, or datagram, arrived there
  first packet, from when it was due  the same, with the time by which the change was late since
                                      changes before it took long
  last packet at the old endpoint     a new connection, or datagram, arrived there
  after our watch                     the same from the event of our watch on: the proxy alone
Times are in microseconds.

The command creates a namespace in the cluster for its objects, and deletes it at the end, at
Ctrl-C and at errors.

Exit codes:
  0  every change was measured
  1  an error, or a change took longer than --timeout; the figures so far are printed";

/// The flags of `deltaproxy probe`.
#[derive(Debug, Clone, Args)]
pub struct ProbeFlags {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub server: ServerFlags,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub settings: ProbeSettings,
    /// Format of the figures
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    /// Write a plot of the times by percentile to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Only delete what earlier runs on this node left in the cluster
    #[arg(long)]
    pub cleanup: bool,
}

/// Measures and prints.
///
/// # Errors
/// Errors that stop the command or a deletion. Earlier results are printed.
pub fn probe(flags: &ProbeFlags) -> Result<(), Failure> {
    let (source, node) = flags.server.load().map_err(Failure::new)?;
    let Ok(server) = server_of(&source) else {
        return Err(Failure::new("probe needs an API server, not manifests"));
    };
    if server.check().is_err() {
        let why =
            "no API server: give --kubeconfig or --master, or run in a pod with a service account";
        return Err(Failure::new(why));
    }
    if let Some(path) = &flags.plot {
        check_writable(path)?;
    }
    let runtime = threads::runtime(2, 0)?;
    let rest = runtime.block_on(RestClient::load(&server)).map_err(Failure::new)?;
    let testbed = Testbed::new(rest, runtime.handle().clone(), node.clone());
    if flags.cleanup {
        return remove_leftovers(&testbed, &node);
    }
    let stop = Arc::new(AtomicBool::new(false));
    listen(&runtime, &stop, testbed.left())?;
    name_leftovers(&testbed, &node)?;
    let (report, outcome) =
        probe::measure(&testbed, &flags.settings, &Progress::new(Arc::clone(&stop)));
    let cleaned = testbed.clean_up();
    if let Some(report) = &report {
        show(report, flags)?;
    }
    let mut problems: Vec<String> = outcome.err().iter().map(ToString::to_string).collect();
    if stop.load(Ordering::Relaxed) && problems.is_empty() {
        problems.push("it was ended before everything was measured".to_owned());
    }
    if let (Err(error), Some(namespace)) = (cleaned, testbed.left().name()) {
        problems.push(error.to_string());
        problems.push(left(&namespace));
    }
    Failure::of_problems(problems)
}

fn show(report: &ProbeReport, flags: &ProbeFlags) -> Result<(), Failure> {
    match flags.output {
        Output::Text => print(&report.table()),
        Output::Json => {
            let text = serde_json::to_string_pretty(report).map_err(Failure::new)?;
            print(&format_args!("{text}\n"));
        }
    }
    flags.plot.as_ref().map_or(Ok(()), |path| write(path, &report.plot()))
}

/// Deletes what earlier runs on this node left, and lists what other nodes left.
fn remove_leftovers(testbed: &Testbed, node: &str) -> Result<(), Failure> {
    let leftovers = testbed.leftovers().map_err(Failure::new)?;
    let mut problems = Vec::new();
    for leftover in &leftovers {
        let namespace = &leftover.namespace;
        if leftover.node != node {
            print(&format_args!(
                "namespace {namespace} is of node {}: clean up there\n",
                leftover.node
            ));
            continue;
        }
        match testbed.delete(namespace) {
            Ok(()) => print(&format_args!("namespace {namespace} deleted\n")),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if leftovers.is_empty() {
        print(&"nothing is left of earlier runs\n");
    }
    Failure::of_problems(problems)
}

/// Lists on standard error what earlier runs on this node left.
fn name_leftovers(testbed: &Testbed, node: &str) -> Result<(), Failure> {
    let leftovers = match testbed.leftovers() {
        Ok(leftovers) => leftovers,
        // The first request checks the connection to the server; this permission is optional.
        Err(ProbeError::Forbidden(_)) => return Ok(()),
        Err(error) => return Err(Failure::new(error)),
    };
    for leftover in leftovers.iter().filter(|leftover| leftover.node == node) {
        warn_of(&left(&leftover.namespace));
    }
    Ok(())
}

fn left(namespace: &str) -> String {
    format!(
        "namespace {namespace} is left in the cluster: delete it with deltaproxy probe --cleanup"
    )
}

/// Installs the signal handlers: the first signal sets `stop`, the second ends the process and
/// lists what remains.
fn listen(runtime: &Runtime, stop: &Arc<AtomicBool>, remains: Left) -> Result<(), Failure> {
    let context = runtime.enter();
    let open = |kind| signal(kind).map_err(Failure::new);
    let mut signals = [
        open(SignalKind::interrupt())?,
        open(SignalKind::terminate())?,
        open(SignalKind::hangup())?,
    ];
    drop(context);
    let stop = Arc::clone(stop);
    runtime.spawn(async move {
        any(&mut signals).await;
        stop.store(true, Ordering::Relaxed);
        any(&mut signals).await;
        if let Some(namespace) = remains.name() {
            warn_of(&left(&namespace));
        }
        process::exit(1);
    });
    Ok(())
}

/// Completes at the next signal.
async fn any([first, second, third]: &mut [Signal; 3]) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
        _ = third.recv() => {}
    }
}
