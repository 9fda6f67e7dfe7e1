//! Address ranges as settings: the cluster's pod ranges, and the addresses that serve NodePorts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use nft::family::Family;

use crate::setting_error::SettingError;

/// The cluster's pod ranges: at most one of each family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterCidrs(Vec<IpNet>);

/// The node's addresses that serve NodePorts. At least one field selects some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePortAddresses {
    /// Select the node's primary address of each family.
    pub primary: bool,
    /// Select the loopback addresses, for connections from the node itself. IPv4 only: the kernel
    /// has no `route_localnet` for IPv6.
    pub localhost: bool,
    /// Select the local addresses in these ranges. A range of length 0 selects every local address of
    /// the family. Loopback addresses need a range of their own.
    pub ranges: Vec<IpNet>,
    /// Loopback addresses may serve node ports at all; a feature gate.
    pub admits_localhost: bool,
}

impl FromStr for ClusterCidrs {
    type Err = SettingError;

    /// Parses ranges separated by commas; an empty text means no range.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut cidrs = Self::default();
        if text.trim().is_empty() {
            return Ok(cidrs);
        }
        for entry in text.split(',') {
            let cidr = parse(entry)?;
            let family = Family::of(cidr.addr());
            if cidrs.of(family).is_some() {
                return Err(SettingError(format!(
                    "{text:?} has two {} ranges; expected at most one of each family",
                    family.name()
                )));
            }
            cidrs.0.push(cidr);
        }
        Ok(cidrs)
    }
}

impl ClusterCidrs {
    /// Returns the ranges of both families.
    pub fn ranges(&self) -> &[IpNet] {
        &self.0
    }

    /// Returns the range of a family.
    pub fn of(&self, family: Family) -> Option<IpNet> {
        self.0.iter().copied().find(|range| Family::of(range.addr()) == family)
    }
}

/// Formats ranges separated by commas.
impl fmt::Display for ClusterCidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for NodePortAddresses {
    type Err = SettingError;

    /// Parses entries separated by commas; an empty text means `primary`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let entries: Vec<_> = text.split(',').filter(|_| !text.trim().is_empty()).collect();
        Self::from_entries(&entries)
    }
}

impl NodePortAddresses {
    /// Only the node's primary address of each family.
    pub const PRIMARY: Self =
        Self { primary: true, localhost: false, ranges: Vec::new(), admits_localhost: true };

    /// Parses ranges and the keywords `primary`, `localhost` and `all`. `all` means the ranges of
    /// length 0, as in kube-proxy 1.37. An empty list means `primary`, as in kube-proxy's nftables
    /// mode.
    ///
    /// # Errors
    /// The first entry that is neither, or a repeated keyword.
    pub fn from_entries(entries: &[&str]) -> Result<Self, SettingError> {
        let (addresses, errors) = Self::read_entries(entries);
        errors.into_iter().next().map_or(Ok(addresses), Err)
    }

    /// Parses like [`Self::from_entries`] and returns the errors of all entries; the addresses are those of the valid ones.
    pub fn read_entries(entries: &[&str]) -> (Self, Vec<SettingError>) {
        if entries.is_empty() {
            return (Self::PRIMARY, Vec::new());
        }
        let mut addresses = Self { primary: false, ..Self::PRIMARY };
        let errors = (0..entries.len()).filter_map(|i| addresses.add(entries, i).err()).collect();
        (addresses, errors)
    }

    /// Adds the entry at `i`.
    fn add(&mut self, entries: &[&str], i: usize) -> Result<(), SettingError> {
        let (item, entry) = (i + 1, entries[i].trim());
        match entry {
            "primary" | "localhost" | "all"
                if entries[..i].iter().any(|earlier| earlier.trim() == entry) =>
            {
                return Err(SettingError(format!(
                    "item {item}: {entry:?} is there already; expected each keyword once"
                )));
            }
            "primary" => self.primary = true,
            "localhost" => self.localhost = true,
            "all" => self.ranges.extend(EVERYWHERE),
            range => self.ranges.push(parse(range).map_err(|_| {
                SettingError(format!(
                    "item {item}: {entry:?} is not primary, localhost, all or an address range such \
                     as 192.168.0.0/16 or fd00::/64"
                ))
            })?),
        }
        Ok(())
    }

    /// Returns whether node ports are to be served at loopback addresses of the family: the list has
    /// `localhost` or a range of such addresses alone (KEP-6032). `all` is no such range.
    pub fn opens_localhost(&self, family: Family) -> bool {
        let mut own = self.ranges.iter().filter(|it| Family::of(it.addr()) == family);
        self.admits_localhost && (self.localhost || own.any(|it| it.addr().is_loopback()))
    }

    /// Returns whether an entry names a loopback address of IPv4.
    pub(crate) fn names_loopback(&self, address: &IpAddr) -> bool {
        self.localhost || self.ranges.iter().any(|range| range.contains(address))
    }

    /// Returns the list from which [`Self::from_entries`] parses these addresses.
    pub fn entries(&self) -> Vec<String> {
        let keywords = [(self.primary, "primary"), (self.localhost, "localhost")];
        let keywords = keywords.into_iter().filter(|(is_there, _)| *is_there);
        let keywords = keywords.map(|(_, keyword)| keyword.to_owned());
        keywords.chain(self.ranges.iter().map(ToString::to_string)).collect()
    }
}

/// Parses an address range, whose host bits become zero.
///
/// # Errors
/// The text is not a range.
pub fn parse(text: &str) -> Result<IpNet, SettingError> {
    let range: Result<IpNet, _> = without_leading_zeros(text.trim()).parse();
    range.map(|range| range.trunc()).map_err(|_| {
        let example = "10.244.0.0/16 or fd00:10::/64";
        SettingError(format!("{text:?} is not an address range such as {example}"))
    })
}

/// Removes leading zeros of the numbers in `010.1.0.0/08` and `fd00::00001`, which Kubernetes
/// accepts.
pub fn without_leading_zeros(text: &str) -> String {
    let parts =
        text.split_inclusive(['.', ':', '/']).map(|part| match part.trim_start_matches('0') {
            number if number.starts_with(|c: char| c.is_ascii_hexdigit()) => number,
            rest => part.get(part.len().saturating_sub(rest.len() + 1)..).unwrap_or(part),
        });
    parts.collect()
}

/// All addresses of both families.
const EVERYWHERE: [IpNet; 2] = [
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn cluster_ranges_are_one_of_each_family_in_any_order() {
        for text in ["10.244.0.0/16,fd00:10::/64", "fd00:10::1/64, 10.244.3.4/16"] {
            let cidrs: ClusterCidrs = text.parse().unwrap();
            assert_eq!(cidrs.of(Family::Ip), Some(range("10.244.0.0/16")));
            assert_eq!(cidrs.of(Family::Ip6), Some(range("fd00:10::/64")));
            assert_eq!(cidrs.to_string().parse(), Ok(cidrs));
        }
        assert_eq!("".parse(), Ok(ClusterCidrs::default()));
        assert_eq!(
            "10.0.0.0/8,11.0.0.0/8".parse::<ClusterCidrs>().unwrap_err().to_string(),
            "\"10.0.0.0/8,11.0.0.0/8\" has two IPv4 ranges; expected at most one of each family"
        );
    }

    #[test]
    fn what_is_no_range_is_refused_by_name() {
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "x/8", "10.0.0/8", "/8"] {
            let error = text.parse::<ClusterCidrs>().unwrap_err();
            let expected = "is not an address range such as 10.244.0.0/16 or fd00:10::/64";
            assert_eq!(error.to_string(), format!("{text:?} {expected}"));
        }
        assert!("10.0.0.0/8,".parse::<ClusterCidrs>().is_err());
    }

    #[test]
    fn node_port_addresses_are_keywords_and_ranges_in_any_order() {
        let addresses = |primary, localhost, ranges: &[&str]| NodePortAddresses {
            primary,
            localhost,
            ranges: ranges.iter().map(|text| range(text)).collect(),
            admits_localhost: true,
        };
        let all = ["0.0.0.0/0", "::/0"];
        for (text, expected) in [
            ("", addresses(true, false, &[])),
            ("primary", addresses(true, false, &[])),
            ("localhost", addresses(false, true, &[])),
            ("all", addresses(false, false, &all)),
            ("0.0.0.0/0,::/0", addresses(false, false, &all)),
            ("primary, localhost", addresses(true, true, &[])),
            ("10.0.0.9/8,localhost,primary", addresses(true, true, &["10.0.0.0/8"])),
            ("fd00::/8,all,localhost", addresses(false, true, &["fd00::/8", all[0], all[1]])),
        ] {
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            assert_eq!(expected.entries().join(",").parse(), Ok(expected));
        }
    }

    #[test]
    fn a_range_of_loopback_addresses_opens_localhost_and_all_does_not() {
        for (text, expected) in [
            ("localhost", [true, true]),
            ("127.0.0.0/8", [true, false]),
            ("primary,127.0.0.1/32", [true, false]),
            ("0.0.0.0/0,127.0.0.1/32", [true, false]),
            ("::1/128", [false, true]),
            ("all", [false, false]),
            ("primary", [false, false]),
            ("0.0.0.0/0,::/0", [false, false]),
            ("126.0.0.0/7,::/127", [false, false]),
        ] {
            let addresses: NodePortAddresses = text.parse().unwrap();
            assert_eq!(Family::ALL.map(|it| addresses.opens_localhost(it)), expected, "{text}");
            let off = NodePortAddresses { admits_localhost: false, ..addresses };
            assert_eq!(Family::ALL.map(|it| off.opens_localhost(it)), [false, false], "{text}");
        }
    }

    #[test]
    fn an_entry_that_is_no_address_of_node_ports_is_refused_by_its_place() {
        for (text, expected) in [
            (
                "primary,Localhost",
                "item 2: \"Localhost\" is not primary, localhost, all or an address range such as \
                 192.168.0.0/16 or fd00::/64",
            ),
            (
                "10.0.0.1",
                "item 1: \"10.0.0.1\" is not primary, localhost, all or an address range such as \
                 192.168.0.0/16 or fd00::/64",
            ),
            (
                "localhost,10.0.0.0/8, localhost",
                "item 3: \"localhost\" is there already; expected each keyword once",
            ),
        ] {
            let error = text.parse::<NodePortAddresses>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!("primary,".parse::<NodePortAddresses>().is_err());
    }
}
