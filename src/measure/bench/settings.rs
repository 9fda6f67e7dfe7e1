//! Validated settings of a run.

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};

use super::change::Mix;
use super::cluster::UDP_EACH;
use super::distribution::Distribution;

/// Settings of a run, most of which are flags.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchSettings {
    /// Several numbers of services, measured one after the other, with a column for the growth
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        conflicts_with = "services",
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_SERVICES))
    )]
    pub sizes: Vec<u32>,
    /// Endpoints of a service on average
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..=1_000)
    )]
    pub endpoints: u32,
    /// How endpoints are spread over services
    #[arg(long, value_name = "HOW", default_value = "real")]
    pub distribution: Distribution,
    /// Number of single changes
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub changes: u32,
    /// Changes in a second; 0 makes one after the other without a pause
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub rate: u32,
    /// Weights of changes of one endpoint, of a whole service, of a policy
    #[arg(long, value_name = "MIX", default_value_t = Mix::default())]
    pub mix: Mix,
    /// Seed of the cluster and its changes; the same seed gives the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Send real packets as well: the first ones of UDP flows, through services and without one,
    /// with --baseline through its table too; and through services while they change
    #[arg(long)]
    pub traffic: bool,
    /// Use the present network namespace.
    #[arg(skip)]
    pub in_place: bool,
    /// Also run `nft` on kube-proxy's layout.
    #[arg(skip)]
    pub baseline: bool,
}

/// Most services that have addresses.
pub const MAX_SERVICES: u32 = 1_000_000;

/// Most endpoints that have addresses: 11.0.0.0/8, with space for new ones.
pub const MAX_ENDPOINTS: u32 = 12_000_000;

/// Error: inconsistent settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A size has more endpoints than addresses.
    #[error(
        "{services} services with {endpoints} endpoints on average are too many: {MAX_ENDPOINTS} \
         endpoints are possible in all"
    )]
    TooManyEndpoints {
        /// Services.
        services: u32,
        /// Average number of endpoints.
        endpoints: u32,
    },
    /// No service receives packets.
    #[error("--traffic goes to every {UDP_EACH}th service: ask for at least {UDP_EACH} services")]
    NoTraffic,
    /// Packets need a private namespace for addresses on the loopback device.
    #[error(
        "--traffic gives addresses to the loopback device, which --in-place leaves alone: leave \
         one of them out"
    )]
    TrafficInPlace,
}

impl BenchSettings {
    /// Checks the combination of flags.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.traffic && self.in_place {
            return Err(SettingsError::TrafficInPlace);
        }
        if self.traffic && self.sizes.iter().any(|services| *services < UDP_EACH) {
            return Err(SettingsError::NoTraffic);
        }
        let too_many = |services: &&u32| {
            services.checked_mul(self.endpoints).is_none_or(|all| all > MAX_ENDPOINTS)
        };
        match self.sizes.iter().find(too_many) {
            Some(&services) => {
                Err(SettingsError::TooManyEndpoints { services, endpoints: self.endpoints })
            }
            None => Ok(()),
        }
    }
}
