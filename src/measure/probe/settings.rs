//! The settings of a run.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use serde::{Deserialize, Serialize};

/// Settings of a run, all of them flags.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSettings {
    /// Protocol of the Service
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp")]
    pub protocol: Protocol,
    /// Address of this machine for the endpoints; its family is that of the Service. Kubernetes
    /// accepts neither loopback nor link-local addresses [default: the Node's InternalIP, or the
    /// source address of the default route]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Changes that are measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_CHANGES))
    )]
    pub changes: u32,
    /// Changes in a second; 0 makes one after the other without a pause. A change that is late since
    /// the one before took long is also measured from the time when it was due
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = value_parser!(u32).range(..=1_000)
    )]
    pub rate: u32,
    /// Changes before them that are not measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = value_parser!(u32).range(..=1_000)
    )]
    pub warm_up: u32,
    /// Seconds that a change may take until a connection reaches the new endpoint
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = value_parser!(u32).range(1..=3_600)
    )]
    pub timeout: u32,
}

/// Most changes of one run: each is in the report.
const MAX_CHANGES: u32 = 100_000;

impl ProbeSettings {
    /// Returns the time limit of a change.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

engine::named! {
    /// A transport protocol.
    #[derive(ValueEnum, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Protocol {
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
    }
}
