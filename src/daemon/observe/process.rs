//! Metrics of this process under the standard names of Prometheus clients, read from `/proc` at
//! each
//! scrape. If a file cannot be read, its metrics are absent.

use std::fmt;
use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads the metrics.
#[derive(Debug)]
pub(super) struct Process;

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

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        if let Some(stat) = read("self/stat").and_then(|text| Stat::parse(&text)) {
            encode_stat(&stat, out)?;
        }
        if let Some(limits) = read("self/limits") {
            let (files, space) = ("Max open files", "Max address space");
            gauge(out, "max_fds", "Limit of open file descriptors", limit(&limits, files))?;
            let help = "Limit of virtual memory";
            gauge(out, "virtual_memory_max_bytes", help, limit(&limits, space))?;
        }
        // One of them is the descriptor of the directory.
        let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));
        gauge(out, "open_fds", "Open file descriptors", open.map(|open| as_f64(open as u64)))?;
        if let Some(text) = read("self/net/netstat") {
            let octets = |field| octets(&text, field).map(as_f64);
            let help = "Bytes received in the network namespace of the process";
            counter(out, "network_receive_bytes", help, octets("InOctets"))?;
            let help = "Bytes sent in the network namespace of the process";
            counter(out, "network_transmit_bytes", help, octets("OutOctets"))?;
        }
        Ok(())
    }
}

fn encode_stat(stat: &Stat, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let seconds = |ticks| Some(as_f64(ticks) / as_f64(system(SysconfVar::CLK_TCK)?));
    let resident = system(SysconfVar::PAGE_SIZE).map(|size| as_f64(stat.resident_pages * size));
    let booted = read("stat").and_then(|text| boot_time(&text));
    let started = booted.and_then(|booted| Some(as_f64(booted) + seconds(stat.started)?));
    counter(out, "cpu_seconds", "Time on a processor", seconds(stat.ticks))?;
    gauge(out, "resident_memory_bytes", "Resident memory", resident)?;
    gauge(out, "virtual_memory_bytes", "Virtual memory", Some(as_f64(stat.virtual_bytes)))?;
    gauge(out, "start_time_seconds", "Start of the process, since 1970", started)?;
    gauge(out, "threads", "Threads", Some(as_f64(stat.threads)))
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

fn gauge(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<f64>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| encode(out, name, help, &ConstGauge::new(value)))
}

fn counter(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<f64>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| encode(out, name, help, &ConstCounter::new(value)))
}

fn encode(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    let (name, help) = (format!("process_{name}"), format!("{help}."));
    metric.encode(out.encode_descriptor(&name, &help, None, metric.metric_type())?)
}

#[allow(clippy::cast_precision_loss, reason = "a metric needs 16 digits at most")]
fn as_f64(value: u64) -> f64 {
    value as f64
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
