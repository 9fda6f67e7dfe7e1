//! Metrics of this process under the standard names of Prometheus clients, read from `/proc` at
//! each
//! scrape. If a file cannot be read, its metrics are absent.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use super::metric::{Described, MetricKind, Sample, as_f64};

/// Fields of `/proc/self/stat`, see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// CPU time in clock ticks, in user space and in the kernel.
    ticks: u64,
    threads: u64,
    /// Clock ticks from boot to the start of the process.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Returns the metrics.
pub(super) fn metrics() -> Vec<Described> {
    let stat = read("self/stat").and_then(|text| Stat::parse(&text));
    let limits = read("self/limits").unwrap_or_default();
    // One of them is the descriptor of the directory.
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));
    let netstat = read("self/net/netstat").unwrap_or_default();
    let seconds = |ticks| Some(as_f64(ticks) / as_f64(system(SysconfVar::CLK_TCK)?));
    let ticks = stat.as_ref().and_then(|it| seconds(it.ticks));
    let page = system(SysconfVar::PAGE_SIZE);
    let resident = stat.as_ref().zip(page).map(|(it, page)| as_f64(it.resident_pages * page));
    let booted = read("stat").and_then(|text| boot_time(&text));
    let started = stat.as_ref().zip(booted);
    let started = started.and_then(|(it, booted)| Some(as_f64(booted) + seconds(it.started)?));
    let of_stat = |field: fn(&Stat) -> u64| stat.as_ref().map(|stat| as_f64(field(stat)));
    let received = "Bytes received in the network namespace of the process";
    let sent = "Bytes sent in the network namespace of the process";
    let gauges = [
        ("resident_memory_bytes", "Resident memory", resident),
        ("virtual_memory_bytes", "Virtual memory", of_stat(|it| it.virtual_bytes)),
        ("start_time_seconds", "Start of the process, since 1970", started),
        ("threads", "Threads", of_stat(|it| it.threads)),
        ("max_fds", "Limit of open file descriptors", limit(&limits, "Max open files")),
        (
            "virtual_memory_max_bytes",
            "Limit of virtual memory",
            limit(&limits, "Max address space"),
        ),
        ("open_fds", "Open file descriptors", open.map(|open| as_f64(open as u64))),
    ];
    let counters = [
        ("cpu_seconds", "Time on a processor", ticks),
        ("network_receive_bytes", received, octets(&netstat, "InOctets").map(as_f64)),
        ("network_transmit_bytes", sent, octets(&netstat, "OutOctets").map(as_f64)),
    ];
    let described = |kind| {
        move |(name, help, value): (&str, &str, Option<f64>)| Described {
            name: format!("process_{name}"),
            help: format!("{help}."),
            kind,
            series: value.map(|value| (Vec::new(), Sample::Real(value))).into_iter().collect(),
        }
    };
    let gauges = gauges.into_iter().map(described(MetricKind::Gauge));
    gauges.chain(counters.into_iter().map(described(MetricKind::Counter))).collect()
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name is in parentheses, and may itself contain spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        // The first field after the name is field 3 in proc_pid_stat(5).
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Returns the soft limit of this name; the largest number if unlimited, as in Go's client.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match values.split_ascii_whitespace().next()? {
        "unlimited" => Some(as_f64(u64::MAX)),
        value => value.parse().ok(),
    }
}

/// Returns a field of `IpExt` in `/proc/net/netstat`: a line of names, and one of values.
fn octets(netstat: &str, field: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(name, _)| *name == field)?.1.parse().ok()
}

/// Returns the seconds from 1970 to the boot of the machine.
fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{path}")).ok()
}

fn system(variable: SysconfVar) -> Option<u64> {
    u64::try_from(sysconf(variable).ok()??).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn the_name_of_a_program_may_hold_anything() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 6 0 1234 \
                    4096000 300 18446744073709551615 1 1";
        let expected = Stat {
            ticks: 300,
            threads: 6,
            started: 1234,
            virtual_bytes: 4_096_000,
            resident_pages: 300,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn limits_and_counts_are_found_by_their_names() {
        let limits = "Limit          Soft Limit  Hard Limit  Units\n\
                      Max address space  unlimited  unlimited  bytes\n\
                      Max open files     1024  4096  files\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(as_f64(u64::MAX)));
        assert_eq!(limit(limits, "Max cpu time"), None);
        let netstat = "TcpExt: InOctets\nTcpExt: 1\nIpExt: A InOctets OutOctets\nIpExt: 2 3 4\n";
        assert_eq!(octets(netstat, "OutOctets"), Some(4));
        assert_eq!(boot_time("cpu 1 2\nbtime 17\n"), Some(17));
    }

    #[test]
    fn the_metrics_are_those_of_this_process() {
        let text = Observe::new().metrics_text();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap()
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..3_600.0).contains(&age), "started {age} s ago");
        assert!(value("process_cpu_seconds_total") < 3_600.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e5 && resident < value("process_virtual_memory_bytes"));
        let open = value("process_open_fds");
        assert!(open >= 3.0 && open < value("process_max_fds"), "{open}");
        assert!(value("process_threads") >= 1.0);
        for name in ["virtual_memory_max_bytes", "network_receive_bytes_total"] {
            assert!(value(&format!("process_{name}")) >= 0.0);
        }
    }
}
