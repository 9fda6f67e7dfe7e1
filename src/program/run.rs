//! `run`: the daemon.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daemon::config::{Config, ConfigError, EXTERNAL_IPS, LOCALHOST_NODE_PORTS, Source};
use daemon::conntrack::{Cleaned, Cleaner, ConnectionCounter, Limits};
use daemon::links::follow_links;
use daemon::localhost_proxy::LocalhostProxy;
use daemon::observe::{
    CountStore, Finder, LeftOut, Observe, PageSetup, ServedContent, Site, Startup, bind, serve,
    serve_at, serve_health_checks,
};
use daemon::open_files;
use daemon::run::{
    Balancing, Cleaning, DirectFollowing, Handovers, Links, Localhost, MissingNode, Parts, Run,
};
use daemon::source::Wanted;
use daemon::source::addresses::{follow_local_addresses, gateways, local_addresses};
use daemon::source::files::{self, FileProblem, FoundProblems};
use daemon::source::notice::Notice;
use daemon::writer::Writer;
use engine::Engine;
use engine::LinkNews;
use engine::counters::Counters;
use engine::model::{Arrival, HostAddresses, ProblemKind};
use engine::routing::Routing;
use futures::FutureExt;
use nft::TableFlags;
use nft::kernel::Nftables;
use nix::sys::prctl::set_thp_disable;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::counts::{Reads, read_counts};
use super::failure::Failure;
use super::log::{Log, noted};
use super::node::{set_conntrack_later, set_up_node};
use super::reload::{FollowedFile, Load, changed, hang_up, is_reload, rename};
use super::search::search;
use super::service_manager::{ServiceManager, State};
use super::{api_server, canary, localhost, other_kube_proxy, running, threads};

/// The commit that the program was built from; empty if the build does not name it.
const COMMIT: &str = env!("DELTAPROXY_COMMIT");

/// Capacity of the queue of event batches; when it is full, the source waits.
const EVENT_QUEUE: usize = 256;

/// Capacity of the queue of notices for the API server; further ones are only logged.
const NOTICE_QUEUE: usize = 64;

/// Capacity of the queue of manifest problems to be counted.
const PROBLEM_QUEUE: usize = 64;

/// Capacity of the queue of changed devices; when it is full, further changes share a batch.
const DEVICE_QUEUE: usize = 4;

/// Time limit for tasks to end.
const STOP_TIME: Duration = Duration::from_millis(500);

/// Time limit for deleting stale flows when the daemon stops. The next start finds the remaining ones.
const CLEAN_TIME: Duration = Duration::from_secs(2);

/// Reason for the end of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM or SIGINT.
    Stopped,
    /// The configuration changed.
    ConfigChanged,
}

/// Watches the source and keeps the node's tables up to date until SIGTERM or SIGINT. The tables
/// stay.
///
/// `load` reads the configuration; if that is in a `file`, a later change of it ends the daemon.
/// `startup` returns the content of `/configz` and `/flagz`. The log starts with the configuration.
///
/// # Errors
/// Errors that prevent the start of the daemon.
pub fn run(
    load: Load,
    file: Option<PathBuf>,
    startup: impl FnOnce(&Config) -> Result<Startup, ConfigError>,
    log: &mut Log,
) -> Result<End, Failure> {
    if is_reload() {
        rename();
    }
    // With `always` in /sys/kernel/mm/transparent_hugepage/enabled, an idle daemon would take up to
    // three times the memory. Before the stacks of its threads, which would have huge pages too.
    let without_huge_pages = set_thp_disable(true);
    let counts = CountStore::default();
    let observe = Observe::with_counts(counts.clone());
    let loaded = load().map_err(|error| Failure::of_config(&error))?;
    let runtime = threads::runtime(2, threads::OTHERS)?;
    // What a pipe contained is gone.
    let file = file.filter(|path| path.is_file());
    *log = Log::start_queued(loaded.config.log, observe.clone()).map_err(Failure::new)?;
    observe.metrics().configuration.loaded(loaded.sha256.as_deref());
    if is_reload() {
        observe.note_reload();
    }
    let config = noted(loaded);
    let startup = startup(&config).map_err(Failure::new)?;
    let (metrics, routing) = (observe.metrics(), &config.routing);
    let gate = |name, stage, is_on| metrics.configuration.features.with([name, stage]).set(is_on);
    gate(EXTERNAL_IPS, "", routing.external_addresses.external_ips);
    gate(LOCALHOST_NODE_PORTS, "ALPHA", routing.node_port_addresses.admits_localhost);
    metrics.own.problem_kinds(ProblemKind::ALL.map(ProblemKind::name));
    api_server::check(&config.source)?;
    if let Err(error) = open_files::raise() {
        tracing::warn!("the soft limit of open files stays as it is: {error}");
    }
    if let Err(error) = without_huge_pages {
        tracing::warn!(
            "transparent huge pages stay as they are, and may take more memory: {error}"
        );
    }
    let content = ServedContent { startup, ..ServedContent::new(observe) };
    let followed = file.map(|path| FollowedFile { path, load });
    let outcome = runtime.block_on(run_until_stopped(config, followed, content, counts));
    runtime.shutdown_timeout(STOP_TIME);
    outcome
}

async fn run_until_stopped(
    config: Config,
    followed: Option<FollowedFile>,
    mut content: ServedContent,
    counts: CountStore,
) -> Result<End, Failure> {
    let (observe, started) = (content.observe.clone(), Instant::now());
    let hang_up = hang_up().map_err(Failure::new)?;
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let has_tables = canary::check_tables(&config, &mut kernel)?;
    let release = kernel.release();
    let flags = flags_of_tables(&config, &kernel);
    let mut engine = Engine::new(config.routing.clone(), flags);
    engine.suit_kernel(release);
    let mut tasks = JoinSet::new();
    let (sender, addresses) = follow_addresses(&mut engine, &mut tasks)?;
    let route_localnet = localhost::prepare(&mut engine);
    content.page = Some(page(&config, flags));
    let reads = reads(&config);
    content.read_counts = Some(read_counts(counts, reads));
    let writer = Writer::spawn(kernel).map_err(Failure::new)?;

    start_servers(&config, &mut tasks, Arc::new(content)).await?;
    let (notices, written) = mpsc::channel(NOTICE_QUEUE);
    let written = (notices.clone(), written);
    let events = start_source((&config, has_tables), &mut tasks, written, (&observe, sender))?;
    let proxy = start_listeners(&config, &mut tasks, &observe, &notices)?;
    report_start(&config, &observe, &notices);
    let report = observed_cleaning(observe.clone());
    let (cleaner, lists) = Cleaner::spawn(Limits::default(), report).map_err(Failure::new)?;
    set_node(&config, &mut tasks);
    let cleaner = Arc::new(cleaner);
    let requests = Arc::clone(&cleaner);
    let handovers = Handovers::new(flags);
    let ending = Arc::clone(&handovers.ending);
    let ports = proxy.as_ref().map(LocalhostProxy::ports);
    let parts = Parts {
        min_interval: config.periods.min_sync,
        check_period: config.periods.check,
        open_reader: Some(Box::new(|| Writer::spawn(Nftables::open().ok()?).ok())),
        addresses: Some(addresses),
        localhost: Localhost { route_localnet, ports },
        node: (config.node_name.clone(), missing_node(&config.source)),
        cleaning: Some(Cleaning::new(move |request| requests.handle(request), lists)),
        balancing: balancing(&config)?,
        // Where kube-proxy serves the other services, its rules are in use.
        leaving: (config.routing.services.is_default())
            .then(|| other_kube_proxy::remove(observe.clone()).boxed()),
        links: follow_links_of_node(&config).map_err(Failure::new)?,
        handovers: Some(handovers),
        notices: Some(notices),
    };
    let observed = observe.clone();
    let manager = service_manager(&mut tasks, &observe);
    let run = Run::new(engine, writer, events, observe, parts);
    let mut signal = None;
    let stop = stop_signal()?;
    let stop = async {
        tokio::select! {
            name = stop => signal = Some(name),
            () = config_changed(changed(config, followed, hang_up, observed)) => {}
        }
        manager.notify(if signal.is_some() { State::Stopping } else { State::Reloading });
        ending.leaves.store(signal.is_some(), Ordering::Relaxed);
        proxy.iter().for_each(LocalhostProxy::stop);
    };
    let ended = ending.run(|stopped| run.until(async { drop(stopped.await) }), stop).await;
    end_threads(&cleaner, proxy).await;
    tasks.abort_all();
    let tables = ended.map_err(Failure::new)?;
    let Some(signal) = signal else { return Ok(End::ConfigChanged) };
    let seconds = started.elapsed().as_secs_f64();
    tracing::info!(signal, %tables, seconds, "stopped; the tables stay and go on working");
    Ok(End::Stopped)
}

/// Follows the addresses around this node.
fn follow_addresses(
    engine: &mut Engine,
    tasks: &mut JoinSet<()>,
) -> Result<(watch::Sender<HostAddresses>, watch::Receiver<HostAddresses>), Failure> {
    let local = local_addresses().map_err(Failure::new)?;
    let known = HostAddresses { gateways: gateways(), ..local.into() };
    engine.set_local_addresses(known.clone());
    let (sender, addresses) = watch::channel(known);
    tasks.spawn(follow_local_addresses(sender.clone()));
    Ok((sender, addresses))
}

/// Returns what is read of the kernel for counts of connections.
fn reads(config: &Config) -> Reads {
    let Routing { counters, flowtable, ended_connections, .. } = &config.routing;
    Reads {
        elements: *counters != Counters::Off,
        offloaded: flowtable.is_some(),
        ended: ended_connections.is_some(),
    }
}

/// Returns the flags of new tables.
fn flags_of_tables(config: &Config, kernel: &Nftables) -> TableFlags {
    if config.owns_tables { kernel.table_flags() } else { TableFlags::default() }
}

/// Sets up the node, and later what cannot be set yet.
fn set_node(config: &Config, tasks: &mut JoinSet<()>) {
    if !set_up_node(config) {
        tasks.spawn(set_conntrack_later(config.conntrack.clone()));
    }
}

/// Returns the service manager, which is notified once the tables are complete, and of progress.
fn service_manager(tasks: &mut JoinSet<()>, observe: &Observe) -> ServiceManager {
    let manager = ServiceManager::of_environment();
    tasks.spawn(manager.clone().notify_ready(observe.clone()));
    tasks.spawn(manager.clone().notify_alive(observe.clone()));
    manager
}

/// Starts what listens on behalf of services: health check ports, and the localhost proxy.
fn start_listeners(
    config: &Config,
    tasks: &mut JoinSet<()>,
    observe: &Observe,
    notices: &mpsc::Sender<Notice>,
) -> Result<Option<LocalhostProxy>, Failure> {
    let (proxy, shares) = localhost::proxy(config, observe, notices).map_err(Failure::new)?;
    let notices = notices.clone();
    let notify = move |problem| {
        // Dropped when the channel is full.
        let _ = notices.try_send(Notice::ClosedPort(problem));
    };
    tasks.spawn(serve_health_checks(observe.clone(), shares, notify));
    Ok(proxy)
}

/// Waits for the threads that act for clients, each within its time limit.
async fn end_threads(cleaner: &Cleaner, proxy: Option<LocalhostProxy>) {
    if !cleaner.finish(CLEAN_TIME) {
        tracing::warn!("stale flows stay until the next start");
    }
    if let Some(proxy) = proxy {
        proxy.end().await;
    }
}

/// Returns a function that records deletions of stale flows in the metrics.
fn observed_cleaning(observe: Observe) -> impl Fn(Cleaned) {
    move |done| {
        if done.complete {
            observe.flows_cleaned(done.entries, done.took)
        } else {
            observe.metrics().own.cleanings_failed.inc()
        }
    }
}

/// Starts the thread that counts live connections, if scheduler `lc` is in use.
fn balancing(config: &Config) -> Result<Option<Balancing>, Failure> {
    let Some(settings) = config.routing.least_connections else { return Ok(None) };
    let (counter, counts) = ConnectionCounter::spawn().map_err(Failure::new)?;
    let request = move |endpoints| counter.request(endpoints);
    Ok(Some(Balancing::new(settings.interval, request, counts)))
}

/// Starts to follow the links of the node, as far as settings need them.
fn follow_links_of_node(config: &Config) -> io::Result<Links> {
    let Routing { flowtable, direct_return, .. } = &config.routing;
    let devices = flowtable.as_ref().map(|_| follow_devices()).transpose()?;
    let direct = direct_return.as_ref().map(DirectFollowing::start).transpose()?;
    Ok(Links { devices, direct })
}

/// Starts to follow the devices of this network namespace.
fn follow_devices() -> io::Result<mpsc::Receiver<LinkNews>> {
    let (sender, news) = mpsc::channel(DEVICE_QUEUE);
    follow_links(sender)?;
    Ok(news)
}

/// Completes with `changed`.
async fn config_changed(changed: impl Future<Output = ()> + Send + 'static) {
    // A task of its own, so that the loop does not block on files.
    if tokio::spawn(changed).await.is_err() {
        pending().await
    }
}

/// Starts the servers of health, metrics and commands.
async fn start_servers(
    config: &Config,
    tasks: &mut JoinSet<()>,
    content: Arc<ServedContent>,
) -> Result<(), Failure> {
    tasks.spawn(running::serve(Arc::clone(&content)));
    let sites =
        [(Site::Health, config.healthz_bind_address), (Site::Metrics, config.metrics_bind_address)];
    for (site, address) in sites {
        let Some(address) = address else { continue };
        if !config.bind_address_hard_fail {
            tasks.spawn(serve_at(Arc::clone(&content), site, address));
            continue;
        }
        match bind(address) {
            Ok(listener) => {
                tasks.spawn(serve(Arc::clone(&content), site, listener));
            }
            Err(error) => {
                let (field, notice): (_, fn(String) -> Notice) = match site {
                    Site::Health => ("healthzBindAddress", Notice::NoHealthPort),
                    Site::Metrics | Site::Local => ("metricsBindAddress", Notice::NoMetricsPort),
                };
                let why = format!("{field}: cannot listen at {address}: {error}");
                api_server::write_last(config, notice(why.clone()), &content.observe).await;
                return Err(Failure::new(why));
            }
        }
    }
    Ok(())
}

/// Manifests need not include a Node; an API server always has it.
fn missing_node(source: &Source) -> MissingNode {
    match source {
        Source::Manifests(_) => MissingNode::Eligible,
        Source::Kubeconfig(_) | Source::InCluster | Source::Server { .. } => {
            MissingNode::Ineligible
        }
    }
}

/// Starts the source, whose events arrive at the receiver. If there is an API server, problems of
/// its objects are written to it too, along with the notices of others.
fn start_source(
    (config, has_tables): (&Config, bool),
    tasks: &mut JoinSet<()>,
    notices: (mpsc::Sender<Notice>, mpsc::Receiver<Notice>),
    (observe, addresses): (&Observe, watch::Sender<HostAddresses>),
) -> Result<mpsc::Receiver<Arrival>, Failure> {
    let (sender, events) = mpsc::channel(EVENT_QUEUE);
    let Source::Manifests(path) = &config.source else {
        api_server::follow((config, has_tables), tasks, (sender, addresses), notices, observe)?;
        return Ok(events);
    };
    // Problems are logged where they are found.
    let (problems, mut found) = mpsc::channel(PROBLEM_QUEUE);
    let wanted = Wanted::new(&config.node_name, &config.routing);
    files::follow(path, wanted, sender, problems).map_err(Failure::new)?;
    let observe = observe.clone();
    tasks.spawn(async move {
        while let Some(FoundProblems { new, present }) = found.recv().await {
            new.into_iter().map(of_file).for_each(|it| observe.left_out(it));
            let present = present.into_iter().map(of_file).collect();
            observe.present(Finder::Source, "", present);
        }
    });
    Ok(events)
}

/// Converts a problem of a manifest for the status page: without an object, its position is shown.
fn of_file(problem: FileProblem) -> LeftOut {
    let FileProblem { file, line, object, field, message } = problem;
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = format!("{}{line}", file.display());
    let object = if object.is_empty() { place } else { format!("{object} ({place})") };
    LeftOut { kind: ProblemKind::Invalid.name(), object, field, message }
}

/// Reports the start, which a changed configuration does not make an Event.
fn report_start(config: &Config, observe: &Observe, notices: &mpsc::Sender<Notice>) {
    if !observe.is_reload() {
        let _ = notices.try_send(Notice::Starting);
    }
    let message = if observe.is_reload() { "started again" } else { "started" };
    tracing::info!(
        node = config.node_name,
        version = env!("CARGO_PKG_VERSION"),
        commit = Some(COMMIT).filter(|commit| !commit.is_empty()),
        source = source_of(&config.source),
        "{message}"
    );
}

/// Returns where the objects come from, for people.
fn source_of(source: &Source) -> String {
    match source {
        Source::Manifests(path) => format!("Manifests of {}", path.display()),
        Source::Kubeconfig(path) => format!("API server of {}", path.display()),
        Source::InCluster => "API server of this cluster".to_owned(),
        Source::Server { url, .. } => format!("API server {url}"),
    }
}

/// Returns the fixed content of the status page.
fn page(config: &Config, flags: TableFlags) -> PageSetup {
    let source = source_of(&config.source);
    let without_owner = match (flags.owner, config.owns_tables) {
        (true, _) => None,
        (false, true) => Some("ownership needs Linux 6.9"),
        (false, false) => Some("tableOwnership is off"),
    };
    PageSetup { node: config.node_name.clone(), source, without_owner, search: search() }
}

/// Returns a future that completes at SIGTERM or SIGINT, with the name of the signal.
pub(super) fn stop_signal() -> Result<impl Future<Output = &'static str> + Send + use<>, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::new)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::new)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
