//! SIGTERM while the kernel, or the daemon, has much to do: the end waits for none of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::handover::HANDOVER_TABLE;
use engine::ruleset::{self, SetId};
use netlink_tests::scenario::{
    Manifests, Node, Protocol, Service, Slice, slice, web_with_node_port,
};
use netlink_tests::{Net, Process, eventually, nft_available};
use nft::kernel::{Kernel, Nftables, ReadError};
use nft::{Family, Operation, Table, TableFamily, Transaction};
use nix::sys::signal::Signal;
use tempfile::NamedTempFile;

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Elements of the interval set. To remove one of the newest takes the kernel 8 to 21 ms, by machine,
/// and it holds its lock for all of a transaction. Transactions of other namespaces may wait too, for
/// the end of an RCU grace period.
const ELEMENTS: u32 = 5_000;

/// Elements that are removed to measure this time.
const TRIED: u32 = 20;

/// How long the lock is held. The tables are not left to the next program after 10 s.
const HELD: Duration = Duration::from_secs(4);

/// How long it must be held after the signal: the log says so after a second.
const LEAST_HELD: Duration = Duration::from_secs(2);

/// Most times that a transaction may end too soon. The last one is held for twice as long as the first.
const TRIES: u32 = 2;

/// A node with a daemon that serves `web`.
struct Served {
    net: Net,
    manifests: Manifests,
    daemon: Process,
}

impl Served {
    fn new() -> Self {
        let net = Net::new();
        let manifests = Manifests::new(&[
            ("node", &Node::new()),
            ("web", &web_with_node_port()),
            ("slice", &slice("a")),
        ]);
        let mut daemon = manifests.run(net.node());
        daemon.wait_for_line("the tables are complete", SOON);
        Self { net, manifests, daemon }
    }

    /// Starts a transaction of another process, and returns once the kernel works on it. It lasts for
    /// `time` if the machine stays as fast as it is meanwhile.
    fn hold(&self, time: Duration) -> Process {
        let node = self.net.node();
        let set = "set s { type ipv4_addr . ipv4_addr; flags interval; };";
        let elements = |numbers: std::ops::Range<u32>| {
            numbers.fold(String::new(), |mut all, it| {
                let (a, b) = (it >> 8, it & 255);
                let _ = write!(all, "10.{a}.{b}.0/24 . 192.168.{a}.{b}, ");
                all
            })
        };
        let all = elements(0..ELEMENTS);
        node.nft_script(&format!("table ip held {{ {set} }}\nadd element ip held s {{ {all} }}"));
        let delete = |all: String| format!("delete element ip held s {{ {all} }}");
        let start = Instant::now();
        node.nft_script(&delete(elements(ELEMENTS - TRIED..ELEMENTS)));
        let each = start.elapsed() / TRIED;
        let fits = |count: &u32| each * *count >= time;
        let count = (1..ELEMENTS / 2).find(fits).unwrap_or(ELEMENTS / 2);
        let rest = ELEMENTS - TRIED;
        let newest = delete(elements(rest - count..rest));
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), newest).unwrap();
        let holder = node.spawn("/usr/sbin/nft", &["-f", file.path().to_str().unwrap()]);
        eventually("a transaction in the kernel", SOON, || {
            (kernel_ticks(holder.pid()) > 20).then_some(())
        });
        holder
    }

    /// Adds a service of so many ports and endpoints.
    fn write_large(&self, count: u16) {
        let (service, slice) = large(count);
        self.manifests.write("large", &service);
        self.manifests.write("large-slice", &slice);
    }

    /// Waits until a thread of the daemon waits for the lock, or the process that holds it has ended.
    fn wait_until_blocked(&self, holder: &Process) {
        eventually("a blocked thread", SOON, || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).unwrap();
            let mut states = threads.map(|thread| state(&thread.unwrap().path()));
            let has_ended = || state(Path::new(&format!("/proc/{}", holder.pid()))) == "Z";
            (states.any(|state| state == "D") || has_ended()).then_some(())
        });
    }
}

/// The fields of a file `stat` after the name of the program, which begin with its state.
fn stat(path: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// The state of a process or thread with this folder.
fn state(folder: &Path) -> String {
    stat(&folder.join("stat")).map_or_else(String::new, |fields| fields[0].clone())
}

/// Ticks that a process has spent in the kernel.
fn kernel_ticks(pid: u32) -> u32 {
    let fields = stat(Path::new(&format!("/proc/{pid}/stat")));
    fields.map_or(0, |fields| fields[12].parse().unwrap())
}

/// A service of so many ports and endpoints.
fn large(count: u16) -> (Service, Slice) {
    let name = |port: u16| format!("p{port}");
    let service = (1..=count).fold(Service::new("large", "10.96.0.77"), |service, port| {
        service.named_port(&name(port), Protocol::Tcp, port, 0)
    });
    let slice = (1..=count).fold(Slice::new("large").without_ports(), |slice, port| {
        slice.named_target(&name(port), Protocol::Tcp, 8080)
    });
    let endpoints: Vec<_> = (0..count).map(|it| format!("10.9.{}.{}", it >> 8, it & 255)).collect();
    (service, slice.endpoints(&endpoints.join(" ")))
}

/// What the daemon does while another process holds the kernel's lock.
#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    Nothing,
    /// A change that the loop commits by itself.
    SmallChange,
    /// A change that its thread commits.
    LargeChange,
}

#[test]
fn the_end_begins_while_another_process_holds_a_transaction_open() {
    if !nft_available() {
        return;
    }
    for meanwhile in [Meanwhile::Nothing, Meanwhile::SmallChange, Meanwhile::LargeChange] {
        let held = (0..TRIES).any(|number| ends_while_held(meanwhile, HELD * (number + 1)));
        assert!(held, "the other transactions ended too soon");
    }
}

/// Ends a daemon while another process holds the lock for about `time`. Returns false without a check
/// if it held it too short: the machine was busier when its speed was measured.
fn ends_while_held(meanwhile: Meanwhile, time: Duration) -> bool {
    let served = Served::new();
    let holder = served.hold(time);
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::SmallChange => served.manifests.set_endpoints("b"),
        Meanwhile::LargeChange => served.write_large(64),
    }
    if meanwhile != Meanwhile::Nothing {
        served.wait_until_blocked(&holder);
    }
    let start = Instant::now();
    served.daemon.signal(Signal::SIGTERM);
    let _ = holder.finish(SOON);
    let is_held = start.elapsed() >= LEAST_HELD;
    let ended = served.daemon.finish(SOON);
    let tables = served.net.node().nft("list tables");
    assert!(ended.stderr.contains("tables=left to the next program"), "{}", ended.stderr);
    assert!(tables.contains(&format!("table ip {HANDOVER_TABLE}\n")), "{tables}");
    let at = |line| ended.stderr.find(line);
    let says_so = at("the kernel has not answered for 1s");
    let is_said_first = says_so.is_some() && says_so < at("left the tables to the next program;");
    assert!(is_said_first || !is_held, "{}", ended.stderr);
    is_held
}

#[test]
fn the_end_does_not_wait_for_a_large_change() {
    if !nft_available() {
        return;
    }
    for is_start in [false, true] {
        let mut served = Served::new();
        if is_start {
            served.daemon.signal(Signal::SIGTERM);
            served.daemon.wait_for_line("stopped", SOON);
        }
        served.write_large(512);
        if is_start {
            served.daemon = served.manifests.run(served.net.node());
        }
        let mut kernel = served.net.node().run(|| Nftables::open().unwrap());
        let (table, endpoints) = (ruleset::table(Family::Ip), SetId::Endpoints.name());
        let mut count = || kernel.count_elements(&table, endpoints).ok()?;
        eventually("the first piece", SOON, || count().filter(|count| *count > 512));
        served.daemon.signal(Signal::SIGTERM);
        served.daemon.wait_for_line("not all changes are committed", SOON);
        let ended = served.daemon.finish(SOON);
        assert!(ended.stderr.contains("such_as=default/large"), "{}", ended.stderr);
        assert!(ended.stderr.contains("tables=left to the next program"), "{}", ended.stderr);
    }
}

#[test]
fn reads_of_elements_can_be_stopped() {
    let net = Net::new();
    let mut kernel = net.node().run(|| Nftables::open().unwrap());
    let table = Table::new(TableFamily::Ip, "t");
    let reference = table.reference();
    kernel.commit(&Transaction { operations: vec![Operation::AddTable(table)] }).unwrap();
    let stop = kernel.stop_of_reads();
    let mut read = || kernel.read_elements(&reference, "s", &mut |_| {}).unwrap_err();
    assert!(read().is_missing());
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(read(), ReadError::Stopped { .. }));
    stop.store(false, Ordering::Relaxed);
    assert!(read().is_missing());
}
