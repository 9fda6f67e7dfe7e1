//! Address ranges as settings: the cluster's pod ranges, and the addresses that serve NodePorts.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use crate::family::Family;

/// The cluster's pod ranges: at most one of each family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterCidrs(Vec<IpNet>);

/// Which of the node's addresses serve NodePorts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The node's primary address of each family.
    Primary,
    /// The local addresses inside these ranges, of which there is at least one. Length 0 is every
    /// local address of the family.
    Cidrs(Vec<IpNet>),
}

/// Why a text is not a list of address ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// An entry is no range.
    #[error("{0:?} is not an address range such as 10.244.0.0/16 or fd00:10::/64")]
    NotACidr(String),
    /// The list has two ranges of one family where one is possible.
    #[error("{0:?} has two {family} ranges; expected at most one of each family", family = .1.name())]
    TwoOfAFamily(String, Family),
    /// `primary` stands beside ranges.
    #[error("{0:?}: expected either \"primary\" alone or address ranges")]
    PrimaryAndOthers(String),
}

impl FromStr for ClusterCidrs {
    type Err = CidrError;

    /// Reads ranges separated by commas; an empty text is no range.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let mut cidrs = Self::default();
        if text.trim().is_empty() {
            return Ok(cidrs);
        }
        for entry in text.split(',') {
            let cidr = parse(entry)?;
            let family = Family::of(cidr.addr());
            if cidrs.of(family).is_some() {
                return Err(CidrError::TwoOfAFamily(text.to_owned(), family));
            }
            cidrs.0.push(cidr);
        }
        Ok(cidrs)
    }
}

impl ClusterCidrs {
    /// The range of one family.
    pub fn of(&self, family: Family) -> Option<IpNet> {
        self.0.iter().copied().find(|range| Family::of(range.addr()) == family)
    }
}

/// Ranges separated by commas.
impl fmt::Display for ClusterCidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for NodePortAddresses {
    type Err = CidrError;

    /// Reads `primary`, or ranges separated by commas; an empty text is `primary`.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let entries: Vec<_> = text.split(',').filter(|_| !text.trim().is_empty()).collect();
        Self::from_entries(&entries)
    }
}

impl NodePortAddresses {
    /// Reads a list whose only entry is `primary` or whose entries are ranges; an empty list is
    /// `primary`, as in kube-proxy's nftables mode.
    ///
    /// # Errors
    /// The first entry that is neither, or `primary` beside others.
    pub fn from_entries(entries: &[&str]) -> Result<Self, CidrError> {
        match entries {
            [] => Ok(Self::Primary),
            [only] if only.trim() == PRIMARY => Ok(Self::Primary),
            _ if entries.iter().any(|entry| entry.trim() == PRIMARY) => {
                Err(CidrError::PrimaryAndOthers(entries.join(",")))
            }
            _ => {
                entries.iter().map(|entry| parse(entry)).collect::<Result<_, _>>().map(Self::Cidrs)
            }
        }
    }
}

fn parse(text: &str) -> Result<IpNet, CidrError> {
    let range: Result<IpNet, _> = text.trim().parse();
    range.map(|range| range.trunc()).map_err(|_| CidrError::NotACidr(text.to_owned()))
}

const PRIMARY: &str = "primary";

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
            assert_eq!(error, CidrError::NotACidr(text.to_owned()));
        }
        assert!("10.0.0.0/8,".parse::<ClusterCidrs>().is_err());
    }

    #[test]
    fn node_port_addresses_are_primary_or_ranges() {
        let ranges = NodePortAddresses::Cidrs(vec![range("0.0.0.0/0"), range("::/0")]);
        for (text, expected) in [
            ("", Some(NodePortAddresses::Primary)),
            ("primary", Some(NodePortAddresses::Primary)),
            ("0.0.0.0/0,::/0", Some(ranges)),
            ("primary,10.0.0.0/8", None),
            ("primary,primary", None),
            ("secondary", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
