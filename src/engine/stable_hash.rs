//! Hashes that are equal on every node and in every version of this program, so that all nodes choose
//! alike.

use std::net::IpAddr;

use crate::model::Target;

/// Returns the hash of an endpoint.
pub(crate) fn of_target(target: &Target) -> u64 {
    mix(fnv(fnv_of(target.address), &target.port.get().to_be_bytes()))
}

/// Returns the hash of an endpoint whose port does not matter.
pub(crate) fn of_address(target: &Target) -> u64 {
    mix(fnv_of(target.address))
}

/// Returns the hash of a name.
pub(crate) fn of_name(name: &str) -> u64 {
    mix(fnv(FNV_START, name.as_bytes()))
}

/// Spreads similar numbers (splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn fnv_of(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => fnv(FNV_START, &address.octets()),
        IpAddr::V6(address) => fnv(FNV_START, &address.octets()),
    }
}

/// 64-bit FNV-1a.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    /// Other hashes would move all clients when another version of this program starts.
    #[test]
    fn hashes_are_those_of_every_other_version() {
        let port = NonZeroU16::new(8080).unwrap();
        let v6 = Target { address: "fd00::1".parse().unwrap(), port };
        assert_eq!(of_target(&v6), 0x2583_210e_6b5c_41a2);
        assert_eq!(of_name("node-1"), 0x94a9_d409_86da_123d);
    }
}
