//! What tables take of the kernel's memory, by /proc/meminfo of the whole machine.

use std::fs;
use std::thread;
use std::time::Duration;

/// Reads the memory in use until it is steady: MiB of `SUnreclaim`, `VmallocUsed` and `Percpu`.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn settled() -> [f64; 3] {
    let mut last = used();
    for _ in 0..READINGS {
        thread::sleep(SETTLE);
        let now = used();
        let is_steady = now.iter().zip(last).all(|(now, last)| (now - last).abs() < STEADY);
        last = now;
        if is_steady {
            break;
        }
    }
    last
}

fn used() -> [f64; 3] {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    LINES.map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    })
}

/// Lines that hold what tables take. Large tables of hashed sets are in
/// `VmallocUsed`, statistics in `Percpu`; elements, chains and rules in `SUnreclaim`.
const LINES: [&str; 3] = ["SUnreclaim:", "VmallocUsed:", "Percpu:"];

/// Time between two readings of the memory. The kernel frees a table later, on a worker.
const SETTLE: Duration = Duration::from_secs(1);

/// Readings until the memory counts as steady anyway.
const READINGS: usize = 20;

/// Change between two readings of steady memory, in MiB.
const STEADY: f64 = 0.3;
