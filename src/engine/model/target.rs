//! Addresses and ports of endpoints, without their conditions.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU16;

use smallvec::SmallVec;

/// Address and port of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Address of the endpoint.
    pub address: IpAddr,
    /// Port of the endpoint.
    pub port: NonZeroU16,
}

impl Target {
    /// Returns an endpoint of port ranges, for which the port has no meaning.
    pub const fn of_ranges(address: IpAddr) -> Self {
        Self { address, port: NonZeroU16::MIN }
    }
}

/// Feeds the hasher with as few writes as possible: services with thousands of endpoints hash each
/// of them.
impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let port = self.port.get();
        match self.address {
            IpAddr::V4(address) => {
                state.write_u64(u64::from(address.to_bits()) << 16 | u64::from(port));
            }
            IpAddr::V6(address) => {
                state.write_u128(address.to_bits());
                state.write_u16(port);
            }
        }
    }
}

/// Endpoints; the lists of most services need no heap memory.
pub type TargetList = SmallVec<[Target; FEW]>;

/// Endpoints stored inline; most services have no more.
const FEW: usize = 8;
