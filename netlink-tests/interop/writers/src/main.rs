//! Times of four writers of nftables for the same changes, in one run: nft-netlink, `nft`, the
//! crate nftables (JSON through `nft`) and rustables.
//!
//! Each writer gets the whole desired table as data of its own kind. Tables are made anew for each
//! measurement, and the writers take turns. `make bench-nft` runs this as root.

mod by_json;
mod by_nft;
mod by_rustables;
mod by_us;
mod forwards;
#[allow(dead_code, missing_docs)]
#[path = "../../../../src/nft/examples/port_forwarding.rs"]
mod port_forwarding;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use nft_netlink::kernel::Nftables;
use nix::sched::{CloneFlags, unshare};

/// Name of the table; family `ip`.
pub const TABLE: &str = "bench";
/// Name of the chain of the rules.
pub const CHAIN: &str = "rules";
/// Name of the set.
pub const SET: &str = "addresses";

const RULES: u16 = 1_000;
const ELEMENTS: u32 = 100_000;
const ROUNDS: usize = 7;

/// A table: the ports that rules accept, in order, and the addresses in a set.
#[derive(Clone, Default)]
pub struct Desired {
    /// Destination ports of TCP.
    pub ports: Vec<u16>,
    /// Elements of the set.
    pub addresses: Vec<Ipv4Addr>,
    /// Most elements of the set.
    pub size: Option<u32>,
}

/// Times of each writer.
type Times = [Vec<Duration>; 4];

/// The socket of a program that runs on. Closing it after a deletion waits for the kernel
/// (`findings/close-after-delete.sh`); `nft` is a process that ends.
type StaysOpen = Option<Nftables>;

/// A writer and its name.
struct Writer {
    name: &'static str,
    /// Makes a table that does not exist.
    load: fn(&Desired),
    /// Makes the table what is desired, without other knowledge of what it is. Who cannot do that
    /// cannot give a set a size either.
    change: Option<fn(&Desired) -> StaysOpen>,
}

const WRITERS: [Writer; 4] = [
    Writer {
        name: "nft-netlink",
        load: |to| drop(by_us::update(to)),
        change: Some(|to| Some(by_us::update(to))),
    },
    Writer { name: "nft -f", load: by_nft::load, change: Some(|to| ended(by_nft::change, to)) },
    Writer {
        name: "nftables (JSON)",
        load: by_json::load,
        change: Some(|to| ended(by_json::change, to)),
    },
    Writer { name: "rustables", load: by_rustables::load, change: None },
];

/// Changes the table by a process that ends.
fn ended(change: fn(&Desired), to: &Desired) -> StaysOpen {
    change(to);
    None
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints the median times of all writers for the way from one table to the other.
fn measure(what: &str, from: Option<&Desired>, to: &Desired) {
    let mut times: Times = Default::default();
    for _ in 0..ROUNDS {
        let can = |writer: &Writer| to.size.is_none() || writer.change.is_some();
        for (writer, times) in WRITERS.iter().zip(&mut times).filter(|(writer, _)| can(writer)) {
            by_nft::run("add table ip bench; delete table ip bench");
            match (from, writer.change) {
                (None, _) => times.push(time(|| (writer.load)(to))),
                (Some(from), Some(change)) => {
                    (writer.load)(from);
                    let mut open = None;
                    times.push(time(|| open = change(to)));
                }
                (Some(_), None) => continue,
            }
            check(writer.name, to);
        }
    }
    print(what, times);
}

/// The same for a program that keeps the table. The others send what they sent before.
fn measure_kept(what: &str, from: &Desired, to: &Desired) {
    let mut times: Times = Default::default();
    for _ in 0..ROUNDS {
        by_nft::run("add table ip bench; delete table ip bench");
        let mut keeper = by_us::keeper(from);
        times[0].push(time(|| by_us::update_kept(&mut keeper, to)));
        check("nft-netlink", to);
    }
    print(what, times);
}

/// Checks that the kernel has the table.
fn check(writer: &str, desired: &Desired) {
    let expected = (desired.ports.len(), desired.addresses.len());
    assert_eq!(by_us::counts(), expected, "{writer}");
}

fn print(what: &str, times: Times) {
    let times = times.map(|times| (!times.is_empty()).then(|| median(times)));
    let ours = times[0].unwrap_or_default().as_secs_f64();
    let mut line = format!("| {what} |");
    for time in times {
        line += &match time {
            Some(time) => {
                let seconds = time.as_secs_f64();
                format!(" {:.1} ms ({:.1}) |", seconds * 1_000.0, seconds / ours)
            }
            None => " - |".to_owned(),
        };
    }
    println!("{line}");
}

fn main() {
    unshare(CloneFlags::CLONE_NEWNET).expect("run as root, or: make bench-nft");
    let rules = Desired { ports: (1..=RULES).collect(), ..Desired::default() };
    let mut other_rule = rules.clone();
    other_rule.ports[usize::from(RULES / 2)] = RULES + 1;
    let address = |i: u32| Ipv4Addr::from((10 << 24) + i);
    let elements =
        Desired { addresses: (0..ELEMENTS).map(address).collect(), ..Desired::default() };
    let mut other_element = elements.clone();
    other_element.addresses[7] = address(ELEMENTS);
    let names: Vec<_> = WRITERS.iter().map(|writer| writer.name).collect();
    println!("| median of {ROUNDS} (ratio) | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    measure("load 1,000 rules", None, &rules);
    measure("load 100,000 elements", None, &elements);
    measure("change one rule of 1,000", Some(&rules), &other_rule);
    measure("change one element of 100,000", Some(&elements), &other_element);
    measure_kept("the same, the table kept", &elements, &other_element);
    let sized = |desired: Desired| Desired { size: Some(ELEMENTS + ELEMENTS / 2), ..desired };
    let (elements, other_element) = (sized(elements), sized(other_element));
    measure("load 100,000 elements of a set with a size", None, &elements);
    measure("change one of them", Some(&elements), &other_element);
    measure_kept("the same, the table kept", &elements, &other_element);
    forwards::measure();
}
