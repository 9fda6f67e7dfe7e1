//! Flags and the KubeProxyConfiguration file, parsed into one valid `Config`.
//!
//! Everything in a [`Config`] is validated. An invalid setting is an error that names the flag, or
//! the file, line and field, and the expectation.

pub mod changes;
pub mod command_flags;
mod content_types;
mod direct_return;
pub mod duration;
mod effective;
mod ended_connections;
mod fields;
mod file;
mod gates;
mod given;
pub mod kube_proxy;
mod lc_settings;
pub mod listen_address;
pub mod log;
mod node_readiness;
mod notes;
mod options;
mod scheduler;
mod section;
pub mod server_flags;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use engine::routing::Routing;
use engine::routing::local::DetectLocalMode;

use crate::yaml::SyntaxError;

pub use content_types::ContentTypes;
pub use gates::{EXTERNAL_IPS, LOCALHOST_NODE_PORTS};
pub use log::LogSettings;
pub use node_readiness::NodeReadiness;
pub use notes::Notes;
pub use scheduler::ChosenScheduler;

/// All settings of a daemon, or of one `apply` or `plan`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of this node's Node object: lower case, not blank.
    pub node_name: String,
    /// Source of Services, EndpointSlices, the Node and ServiceCIDRs.
    pub source: Source,
    /// Media types of these objects from an API server.
    pub content_types: ContentTypes,
    /// Level and format of the log.
    pub log: LogSettings,
    /// Treatment of packets that does not come from objects.
    pub routing: Routing,
    /// Times between actions that repeat.
    pub periods: Periods,
    /// The daemon owns its tables, so that no other program changes them (Linux 6.9 and later).
    pub owns_tables: bool,
    /// What is written to the Node object of this node.
    pub node_readiness: NodeReadiness,
    /// Address of `/healthz`, `/livez` and `/readyz`; `None` disables them.
    pub healthz_bind_address: Option<SocketAddr>,
    /// Address of `/metrics`; `None` disables it.
    pub metrics_bind_address: Option<SocketAddr>,
    /// A failed bind is an error instead of being retried.
    pub bind_address_hard_fail: bool,
    /// Settings of conntrack, applied at the start.
    pub conntrack: ConntrackSettings,
    /// Value of `/proc/self/oom_score_adj`, -1000 to 1000, written at the start.
    pub oom_score_adj: Option<i16>,
}

/// Times between actions that repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// Minimum time between two transactions; zero is no minimum.
    pub min_sync: Duration,
    /// Time in which the background check compares everything; zero turns it off.
    pub check: Duration,
}

/// Default of [`Periods::check`].
pub const CHECK_PERIOD: Duration = Duration::from_secs(600);

/// Limits and timeouts of conntrack. Zero and false leave the kernel's value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConntrackSettings {
    /// Limit of entries for each processor.
    pub max_per_core: u32,
    /// Lower bound of the limit that results from `max_per_core`.
    pub min: u32,
    /// Timeout of an idle TCP connection.
    pub tcp_established_timeout: Duration,
    /// Timeout of a TCP connection that one side has closed.
    pub tcp_close_wait_timeout: Duration,
    /// Accept TCP packets outside the window.
    pub tcp_be_liberal: bool,
    /// Timeout of a UDP flow without answers.
    pub udp_timeout: Duration,
    /// Timeout of a UDP flow with answers.
    pub udp_stream_timeout: Duration,
}

impl ConntrackSettings {
    /// Returns the defaults of kube-proxy (`pkg/proxy/apis/config/v1alpha1/defaults.go`).
    pub fn of_kube_proxy() -> Self {
        Self {
            max_per_core: 32_768,
            min: 131_072,
            tcp_established_timeout: Duration::from_hours(24),
            tcp_close_wait_timeout: Duration::from_hours(1),
            ..Self::default()
        }
    }
}

/// Source of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or directory of manifests.
    Manifests(PathBuf),
    /// The API server that this kubeconfig file names.
    Kubeconfig(PathBuf),
    /// The API server of the pod in which the daemon runs, with the pod's service account.
    InCluster,
    /// The API server at this address.
    Server {
        /// Address of the API server.
        url: String,
        /// File of credentials; without it none are sent.
        kubeconfig: Option<PathBuf>,
    },
}

/// A configuration, and notes about it for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Settings without effect.
    pub notes: Notes,
    /// SHA-256 of the file in hexadecimal; `None` without a file.
    pub sha256: Option<String>,
}

/// Error of building a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is not YAML or JSON.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Cause and position.
        source: SyntaxError,
    },
    /// A field of the file has a wrong type or an impossible value.
    #[error("{}:{line}: {field}: {message}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Line of the file, from 1.
        line: usize,
        /// Path of the field, such as `nftables.masqueradeBit`.
        field: String,
        /// Actual value and expectation.
        message: String,
    },
    /// Several fields or flags are wrong; none of the errors is of this variant.
    #[error("{}", lines(.0))]
    Several(Vec<Self>),
    /// A flag of kube-proxy is unknown or has an invalid value.
    #[error("{flag}: {message}")]
    Flag {
        /// The flag, with its dashes.
        flag: String,
        /// Actual value and expectation.
        message: String,
    },
    /// The mode of local detection needs a value that is absent.
    #[error("--detect-local-mode={mode} needs {flag}")]
    DetectLocal {
        /// The mode.
        mode: DetectLocalMode,
        /// The flag, with its dashes.
        flag: String,
    },
    /// The given name of this node is blank.
    #[error("--hostname-override is blank: give the name of this machine's Node object")]
    BlankNodeName,
    /// No name was given, and the operating system has none.
    #[error("this machine has no host name: give the name of its Node object, --hostname-override")]
    NoHostName,
}

impl ConfigError {
    /// Returns the one error, or all of several.
    fn all(mut errors: Vec<Self>) -> Self {
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }

    /// Returns each of several errors, or the one.
    fn into_each(self) -> Vec<Self> {
        if let Self::Several(errors) = self { errors } else { vec![self] }
    }

    /// Returns the text of each error, without line ends.
    pub fn messages(&self) -> Vec<String> {
        let one = std::slice::from_ref(self);
        let all = if let Self::Several(errors) = self { errors } else { one };
        all.iter().map(Self::to_string).collect()
    }
}

fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(ConfigError::to_string).collect::<Vec<_>>().join("\n")
}

/// Returns the name of the node: `wanted`, else the machine's host name; trimmed, lower case.
fn node_name(wanted: Option<&str>) -> Result<String, ConfigError> {
    if let Some(name) = wanted.filter(|name| !name.is_empty()) {
        return trimmed(name).ok_or(ConfigError::BlankNodeName);
    }
    let host = nix::sys::utsname::uname().ok();
    let host = host.as_ref().and_then(|host| host.nodename().to_str());
    host.and_then(trimmed).ok_or(ConfigError::NoHostName)
}

fn trimmed(name: &str) -> Option<String> {
    let name = name.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_trimmed_and_lower_cased_and_a_blank_one_is_refused() {
        assert_eq!(node_name(Some(" Node-1\n")).unwrap(), "node-1");
        assert!(matches!(node_name(Some("  ")), Err(ConfigError::BlankNodeName)));
    }

    #[test]
    fn without_a_name_the_node_is_the_host() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(node_name(None).unwrap(), host.trim().to_lowercase());
        assert_eq!(node_name(Some("")).unwrap(), host.trim().to_lowercase());
    }
}
