//! The sources that may use a load balancer address: `spec.loadBalancerSourceRanges` as networks.

use std::net::IpAddr;

use ipnet::IpNet;
use nft::family::Family;

use crate::model::looked_up_length;

/// Returns the networks that may use the load balancer addresses of a service, disjoint and
/// ascending; `None` if all sources may.
pub(super) fn admitted(networks: &[IpNet], family: Family) -> Option<Vec<IpNet>> {
    let own = || networks.iter().filter(|network| Family::of(network.addr()) == family);
    if own().next().is_none() || own().any(|network| network.prefix_len() == 0) {
        return None;
    }
    Some(disjoint(own().map(IpNet::trunc).collect()).flat_map(looked_up).collect())
}

/// Admits the load balancer addresses too, as far as `most` allows, if a network has the node's
/// address: the node may use one of them as source.
pub(super) fn admit_vips(
    admitted: &mut Vec<IpNet>,
    (vips, family): (&[IpAddr], Family),
    node_address: Option<IpAddr>,
    most: usize,
) {
    let has = |admitted: &[IpNet], address| admitted.iter().any(|it| it.contains(&address));
    if node_address.is_some_and(|address| has(admitted, address)) {
        let others = vips.iter().filter(|vip| Family::of(**vip) == family && !has(admitted, **vip));
        let others: Vec<_> = others.map(|vip| IpNet::from(*vip)).collect();
        admitted.extend(others.into_iter().take(most.saturating_sub(admitted.len())));
        admitted.sort_unstable();
        admitted.dedup();
    }
}

/// Removes nested networks. Two networks are either disjoint or nested, so the result is disjoint.
fn disjoint(mut networks: Vec<IpNet>) -> impl Iterator<Item = IpNet> {
    // A network comes before those within it.
    networks.sort_unstable();
    let mut last: Option<IpNet> = None;
    networks.into_iter().filter(move |network| {
        let is_new = last.is_none_or(|last| !last.contains(network));
        last = last.filter(|_| !is_new).or(Some(*network));
        is_new
    })
}

/// Returns the networks that stand for one in rules.
fn looked_up(network: IpNet) -> impl Iterator<Item = IpNet> {
    let subnets = network.subnets(looked_up_length(&network));
    // The length is never shorter than that of the network, which is the only error.
    subnets.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(networks: &[&str], node: &str, expected: Option<&[&str]>) {
        let networks: Vec<_> = networks.iter().map(|text| text.parse().unwrap()).collect();
        let vips = ["192.0.2.60".parse().unwrap(), "fd00::60".parse().unwrap()];
        for family in Family::ALL {
            let mut found = admitted(&networks, family);
            if let Some(found) = &mut found {
                admit_vips(found, (&vips, family), Some(node.parse().unwrap()), 100);
            }
            let of_family = |text: &&&str| text.contains(':') == (family == Family::Ip6);
            let expected = expected.map(|all| all.iter().filter(of_family).copied());
            let expected = expected.map(Iterator::collect::<Vec<_>>).filter(|it| !it.is_empty());
            let found = found.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(found, expected.map(|it| it.into_iter().map(str::to_owned).collect()));
        }
    }

    #[test]
    fn without_a_range_of_the_family_or_with_all_of_it_everybody_may() {
        check(&[], "10.0.0.1", None);
        check(&["fd00::/8"], "10.0.0.1", Some(&["fd00::/8"]));
        check(&["10.0.0.0/8", "0.0.0.0/0"], "10.0.0.1", None);
    }

    #[test]
    fn ranges_that_others_hold_are_left_out() {
        let ranges = ["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "192.0.2.9/24"];
        check(&ranges, "172.16.0.1", Some(&["10.0.0.0/8", "192.0.2.0/24"]));
    }

    #[test]
    fn a_range_with_the_node_lets_the_load_balancer_addresses_in() {
        check(&["10.0.0.0/8"], "10.0.0.1", Some(&["10.0.0.0/8", "192.0.2.60/32"]));
        check(&["192.0.2.0/24"], "192.0.2.1", Some(&["192.0.2.0/24"]));
    }

    #[test]
    fn ipv6_ranges_of_unusual_lengths_become_longer_ones() {
        check(&["2001:db8::/47"], "10.0.0.1", Some(&["2001:db8::/48", "2001:db8:1::/48"]));
    }
}
