//! The sources that may use a load balancer address: `spec.loadBalancerSourceRanges` as ranges of
//! addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use nft::family::Family;

use crate::ruleset::Range;

/// Returns the ranges that may use the addresses `vips` of a service; `None` if all sources may.
///
/// A range with the node's address admits the node. The node may use one of its load balancer
/// addresses as source, so `vips` are then admitted too. The ranges are disjoint, as the kernel
/// requires.
pub(super) fn allowed(
    networks: &[IpNet],
    vips: &[IpAddr],
    node_address: Option<IpAddr>,
    family: Family,
) -> Option<Box<[Range]>> {
    let own: Vec<_> =
        networks.iter().filter(|network| Family::of(network.addr()) == family).collect();
    if own.is_empty() || own.iter().any(|network| network.prefix_len() == 0) {
        return None;
    }
    let range_of = |it: &IpNet| Range { first: it.network(), last: it.broadcast() };
    let mut ranges: Vec<_> = own.into_iter().map(range_of).collect();
    if node_address.is_some_and(|address| ranges.iter().any(|range| range.contains(address))) {
        let vips = vips.iter().filter(|vip| Family::of(**vip) == family);
        ranges.extend(vips.map(|vip| Range { first: *vip, last: *vip }));
    }
    Some(disjoint(ranges))
}

/// Removes nested networks. Two networks are either disjoint or nested, so the result is disjoint.
fn disjoint(mut ranges: Vec<Range>) -> Box<[Range]> {
    ranges.sort_unstable_by(|a, b| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
    let mut kept: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        if kept.last().is_none_or(|last| range.last > last.last) {
            kept.push(range);
        }
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(networks: &[&str], node: &str, expected: Option<&[&str]>) {
        let networks: Vec<_> = networks.iter().map(|text| text.parse().unwrap()).collect();
        let vips = ["192.0.2.60".parse().unwrap(), "fd00::60".parse().unwrap()];
        let ranges = allowed(&networks, &vips, Some(node.parse().unwrap()), Family::Ip);
        let text = |range: &Range| format!("{}-{}", range.first, range.last);
        let ranges = ranges.map(|ranges| ranges.iter().map(text).collect::<Vec<_>>());
        let expected =
            expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(ranges, expected);
    }

    #[test]
    fn without_a_range_of_the_family_or_with_all_of_it_everybody_may() {
        check(&[], "10.0.0.1", None);
        check(&["fd00::/8"], "10.0.0.1", None);
        check(&["10.0.0.0/8", "0.0.0.0/0"], "10.0.0.1", None);
    }

    #[test]
    fn ranges_that_others_hold_are_left_out() {
        let ranges = ["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "192.0.2.0/24"];
        let expected = ["10.0.0.0-10.255.255.255", "192.0.2.0-192.0.2.255"];
        check(&ranges, "172.16.0.1", Some(&expected));
    }

    #[test]
    fn a_range_with_the_node_lets_the_load_balancer_addresses_in() {
        check(
            &["10.0.0.0/8"],
            "10.0.0.1",
            Some(&["10.0.0.0-10.255.255.255", "192.0.2.60-192.0.2.60"]),
        );
        check(&["192.0.2.0/24"], "192.0.2.1", Some(&["192.0.2.0-192.0.2.255"]));
    }
}
