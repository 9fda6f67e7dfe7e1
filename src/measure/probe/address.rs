//! The address of this machine on which the endpoints listen.

use std::io;
use std::net::{IpAddr, UdpSocket};

use network::{Rtnetlink, Way};
use nft::family::Family;
use serde_json::Value;

/// Error of choosing an address for endpoints.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The API server would reject the address (`ValidateEndpointIP` in
    /// pkg/apis/core/validation/validation.go).
    #[error(
        "--address {0} cannot be an endpoint: Kubernetes accepts no loopback, link-local, multicast \
         or unspecified address"
    )]
    Unfit(IpAddr),
    /// The address is not local.
    #[error("--address {0} is not an address of this machine")]
    Foreign(IpAddr),
    /// The Service has another family.
    #[error("--address {0} is not of the Service's family: its ClusterIP is {1}")]
    Family(IpAddr, IpAddr),
    /// No address was found.
    #[error(
        "no {} address for endpoints: Node {node} has no InternalIP of this machine, and no default \
         route has a source address; give --address",
        family.name()
    )]
    Unknown {
        /// Name of the Node.
        node: String,
        /// Family of the ClusterIP.
        family: Family,
    },
}

/// Checks the address of a flag.
///
/// # Errors
/// The address is not one of this machine that Kubernetes accepts.
pub(super) fn check(address: IpAddr) -> Result<(), AddressError> {
    match (is_fit(address), is_local(address)) {
        (false, _) => Err(AddressError::Unfit(address)),
        (true, false) => Err(AddressError::Foreign(address)),
        (true, true) => Ok(()),
    }
}

/// Finds an address of this family: an InternalIP of `node` that is local, or the source of the
/// default route.
pub(super) fn find(family: Family, node: Option<&Value>) -> Option<IpAddr> {
    let of_node = node.into_iter().flat_map(internal_ips);
    let found = of_node.chain(default_source(family).ok().flatten());
    let mut usable = found
        .filter(|address| Family::of(*address) == family && is_fit(*address) && is_local(*address));
    usable.next()
}

/// Returns the addresses of type InternalIP in the status of a Node.
fn internal_ips(node: &Value) -> impl Iterator<Item = IpAddr> {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.filter(|address| address["type"] == "InternalIP");
    internal.filter_map(|address| address["address"].as_str()?.parse().ok())
}

/// Returns the source address for packets to the Internet, represented by documentation addresses
/// (RFC 5737, RFC 3849).
fn default_source(family: Family) -> io::Result<Option<IpAddr>> {
    let far: IpAddr = match family {
        Family::Ip => [192, 0, 2, 1].into(),
        Family::Ip6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
    };
    let route = Rtnetlink::open()?.route(far, Way::default())?;
    Ok(route.ok().and_then(|route| route.source))
}

fn is_fit(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_that_the_api_server_refuses_are_unfit() {
        let refused =
            ["127.0.0.1", "::1", "169.254.0.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"];
        for address in refused {
            assert!(!is_fit(address.parse().unwrap()), "{address}");
        }
        assert!(is_fit("192.0.2.1".parse().unwrap()) && is_fit("fd00::1".parse().unwrap()));
        let error = check("127.0.0.1".parse().unwrap()).unwrap_err();
        assert!(matches!(error, AddressError::Unfit(_)), "{error}");
    }

    #[test]
    fn an_internal_ip_is_read_and_others_are_not() {
        let node = json!({"status": {"addresses": [
            {"type": "Hostname", "address": "192.0.2.9"},
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ]}});
        let expected: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(internal_ips(&node).collect::<Vec<_>>(), expected);
        assert_eq!(internal_ips(&json!({})).count(), 0);
    }
}
