//! `bench`: measures the cost of changes on this machine.
//!
//! Each size of cluster has a process of its own, so that neither memory nor network namespace is
//! reused. The first process only collects and prints.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::{Args, Subcommand, ValueEnum};
use measure::bench::{self, BenchError, BenchReport, BenchSettings, SizeReport};
use measure::figures::{Machine, Progress};
use measure::probe::ProbeReport;
use nft::kernel::Nftables;
use serde::Deserialize;

use super::cleanup::remove;
use super::failure::Failure;
use super::output::print;
use super::run::stop_signal;

/// Descriptions of the table's rows.
pub const BENCH_ROWS: &str = "\
Rows:
  all objects parsed   the lists, from bytes to API objects
  empty table          from API objects in memory until the kernel has everything
  memory               resident after that, and at most until then
  start again          a new process finds complete tables: from bytes until ready;
                       its transactions make it their owner
  endpoint change      one of a service's endpoints comes, goes or is replaced, on one thread:
    parsed             from the bytes of a watch's event to an API object
    modelled           from the API object to the model
    diffed             from the model to a transaction
    encoded            from the transaction to netlink messages
    committed          the system call in which the kernel does its work
    noted              the acknowledgement, and the update of the installed elements
    all stages         the sum
    CPU in user space  processor time of all stages but committed
    end to end         the same through the daemon's loop: its queues and waking its threads too
  one of 5000          an endpoint of a service with 5,000 endpoints
  slices at once       a burst through the loop, from the first byte to the last commit
  zone change          the node moves to another zone, which touches every service; and how long
                       changes of one endpoint take that come meanwhile
  UDP                  packets on the loopback device, their whole path: the first ones of flows,
                       and further ones of established flows; with --baseline the same flows,
                       alternately, through the other table too, which is in a namespace of its
                       own so that no packet passes both; flows in a second are those of the
                       median turn of 64
  by nft               the time of the whole program for the same change
Times with three numbers are the median, 99 of 100, and the longest.";

/// The flags of `deltaproxy bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchFlags {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub command: Option<BenchCommand>,
    /// Services of the synthetic cluster
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(bench::MAX_SERVICES))
    )]
    pub services: u32,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documentation here would become that of the command")]
    pub settings: BenchSettings,
    /// Also measure another program, alternately with deltaproxy, in a namespace of its own: the program
    /// nft with the layout of kube-proxy 1.36, a chain and an anonymous map for each service. It makes
    /// about 100 of the changes of one endpoint, and all others, for a minute at most
    #[arg(long, value_name = "PROGRAM")]
    pub baseline: Option<Baseline>,
    /// Work in the present network namespace, if it has no tables of a kube-proxy
    #[arg(long)]
    pub in_place: bool,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a plot of the main times by percentile to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Settings of the process for one size, which the first process starts
    #[arg(long, hide = true, exclusive = true, value_name = "JSON")]
    pub worker: Option<String>,
}

/// Another program to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// The program nft.
    Nft,
}

/// Actions on earlier results.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Compare two runs, from files of --json or of `probe --output json`
    Compare {
        /// The run to compare with
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// The run that is compared with it
        #[arg(value_name = "B.json")]
        second: PathBuf,
    },
}

/// Standard output of the process for one size: a report, or an error.
type Answer = Result<SizeReport, String>;

/// Measures and prints.
///
/// # Errors
/// Errors that stop the command. Sizes before the failed one are still printed.
pub fn bench(flags: &BenchFlags) -> Result<(), Failure> {
    if let Some(task) = &flags.worker {
        return work(task);
    }
    if let Some(BenchCommand::Compare { first, second }) = &flags.command {
        print(&compare(first, second)?);
        return Ok(());
    }
    let mut settings = BenchSettings {
        baseline: flags.baseline.is_some(),
        in_place: flags.in_place,
        ..flags.settings.clone()
    };
    if settings.sizes.is_empty() {
        settings.sizes.push(flags.services);
    }
    settings.check().map_err(Failure::new)?;
    let (end, listen) = StopRequest::listen()?;
    thread::spawn(listen);
    for path in flags.json.iter().chain(&flags.svg) {
        check_writable(path)?;
    }
    let (report, failure) = run_all(settings, &end)?;
    if !report.sizes.is_empty() {
        print(&report.table());
        if let Some(path) = &flags.json {
            let text = serde_json::to_string_pretty(&report).map_err(Failure::new)?;
            write(path, &text)?;
        }
        if let Some(path) = &flags.svg {
            write(path, &report.plot())?;
        }
    }
    failure.map_or(Ok(()), Err)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| unwritable(path, &error))
}

/// Checks before the run that the result can be written; keeps the content of the file.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

/// Output of `bench --json` or `probe --output json`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Measured {
    Bench(Box<BenchReport>),
    Probe(Box<ProbeReport>),
}

fn compare(first: &Path, second: &Path) -> Result<String, Failure> {
    match (read(first)?, read(second)?) {
        (Measured::Bench(first), Measured::Bench(second)) => Ok(first.compare(&second)),
        (Measured::Probe(first), Measured::Probe(second)) => Ok(first.compare(&second)),
        (Measured::Bench(_), Measured::Probe(_)) | (Measured::Probe(_), Measured::Bench(_)) => {
            let (first, second) = (first.display(), second.display());
            let why = format!("one of {first} and {second} is of bench, and the other of probe");
            Err(Failure::new(why))
        }
    }
}

fn read(path: &Path) -> Result<Measured, Failure> {
    let failed = |error: io::Error| {
        let path = path.display();
        let why = format!(
            "cannot read {path} as what bench --json or probe --output json wrote: {error}"
        );
        Failure::new(why)
    };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| failed(error.into()))
}

/// Runs a process for each size. Returns the results, and the error of the last one if it failed.
fn run_all(
    settings: BenchSettings,
    end: &StopRequest,
) -> Result<(BenchReport, Option<Failure>), Failure> {
    let mut report = BenchReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(),
        settings,
        sizes: Vec::new(),
        interrupted: false,
    };
    for &services in &report.settings.sizes {
        match run_one(&report.settings, services, end).map_err(Failure::new)? {
            Ok(size) => {
                report.interrupted |= size.interrupted;
                report.sizes.push(size);
            }
            Err(why) => return Ok((report, Some(Failure::new(why)))),
        }
        if end.is_requested() {
            report.interrupted = true;
            break;
        }
    }
    Ok((report, None))
}

fn run_one(settings: &BenchSettings, services: u32, end: &StopRequest) -> io::Result<Answer> {
    let task = serde_json::to_string(&(settings, services))?;
    let mut child = Command::new("/proc/self/exe")
        .args(["bench", "--worker", &task])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // Closed when this process ends in any way or is stopped, which stops the other one.
    end.close_later(child.stdin.take());
    let output = child.wait_with_output()?;
    if !output.stdout.is_empty() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    let why = if end.is_requested() {
        "it was ended before anything was measured".to_owned()
    } else {
        format!("the process for one size failed ({}); was the memory too small?", output.status)
    };
    Ok(Err(why))
}

/// A requested stop, by Ctrl-C or SIGTERM. While it is in use, these signals do not end the
/// process.
#[derive(Clone, Debug, Default)]
struct StopRequest {
    is_set: Arc<AtomicBool>,
    /// Standard input of the process that is stopped too.
    child: Arc<Mutex<Option<ChildStdin>>>,
}

impl StopRequest {
    /// Installs the signal handlers. The returned function runs on a thread that can be started
    /// later.
    fn listen() -> Result<(Self, impl FnOnce() + Send + 'static), Failure> {
        let end = Self::default();
        let listener = end.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(Failure::new)?;
        let context = runtime.enter();
        let stop = stop_signal()?;
        drop(context);
        let listen = move || {
            runtime.block_on(stop);
            listener.is_set.store(true, Ordering::Relaxed);
            listener.close_later(None);
        };
        Ok((end, listen))
    }

    fn is_requested(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Closes `stdin` once a stop is requested, and that of an earlier process now.
    fn close_later(&self, stdin: Option<ChildStdin>) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        *child = stdin.filter(|_| !self.is_requested());
    }
}

/// Measures one size, and writes the result to standard output.
fn work(task: &str) -> Result<(), Failure> {
    let (settings, services) = serde_json::from_str(task).map_err(Failure::new)?;
    let answer: Answer = measure(&settings, services).map_err(|error| error.to_string());
    print(&serde_json::to_string(&answer).map_err(Failure::new)?);
    Ok(())
}

fn measure(settings: &BenchSettings, services: u32) -> Result<SizeReport, Failure> {
    let (end, listen) = StopRequest::listen()?;
    if settings.in_place {
        bench::check_unused().map_err(Failure::new)?;
    } else {
        // Before a second thread exists.
        bench::enter_own().map_err(BenchError::from).map_err(Failure::new)?;
    }
    thread::spawn(listen);
    let is_orphan = Arc::clone(&end.is_set);
    thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        is_orphan.store(true, Ordering::Relaxed);
    });
    let progress = Progress::new(end.is_set);
    let report = bench::measure(settings, services, &progress).map_err(Failure::new);
    if settings.in_place {
        remove(&mut Nftables::open().map_err(Failure::new)?, false)?;
    }
    report
}
