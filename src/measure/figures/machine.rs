//! The machine of a measurement.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// Number of processors that the process may use.
    pub cpus: usize,
    /// Model of the first processor; empty if unknown.
    pub cpu: String,
}

impl Machine {
    /// Describes this machine.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let cpu = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let cpu = cpu.unwrap_or_default().trim_start_matches([' ', '\t', ':']);
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu.trim().to_owned(),
        }
    }

    /// Returns facts whose differences make a comparison less fair.
    pub fn facts(&self) -> [(&'static str, String); 3] {
        let Self { kernel, cpus, cpu } = self.clone();
        [("kernel", kernel), ("CPUs", cpus.to_string()), ("CPU", cpu)]
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}, {} CPUs {}", self.kernel, self.cpus, self.cpu)
    }
}
