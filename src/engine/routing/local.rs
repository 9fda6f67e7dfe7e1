//! Detection of packets from pods of this node or cluster.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use super::ranges::ClusterCidrs;
use crate::flowtable::{MAX_NAME, is_device_name};
use crate::setting_error::SettingError;

/// Criterion for a packet from a pod. Other traffic to a ClusterIP is masqueraded, and external
/// traffic policy `Local` applies to other traffic only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalDetection {
    /// The source is in these ranges. In a family without a range, packets are not distinguished.
    ClusterCidr(ClusterCidrs),
    /// The source is in the `spec.podCIDRs` of the Node object.
    NodeCidr,
    /// The packet arrived on this interface.
    BridgeInterface(InterfaceName),
    /// The packet arrived on an interface whose name has this prefix.
    InterfaceNamePrefix(InterfaceName),
}

impl LocalDetection {
    /// Returns the pod ranges that the settings name.
    pub fn ranges(&self) -> Vec<IpNet> {
        match self {
            Self::ClusterCidr(ranges) => ranges.ranges().to_vec(),
            Self::NodeCidr | Self::BridgeInterface(_) | Self::InterfaceNamePrefix(_) => Vec::new(),
        }
    }
}

impl Default for LocalDetection {
    fn default() -> Self {
        Self::ClusterCidr(ClusterCidrs::default())
    }
}

/// Modes that `detectLocalMode` can name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DetectLocalMode {
    /// `ClusterCIDR`, the default.
    #[default]
    ClusterCidr,
    /// `NodeCIDR`.
    NodeCidr,
    /// `BridgeInterface`.
    BridgeInterface,
    /// `InterfaceNamePrefix`.
    InterfaceNamePrefix,
}

impl DetectLocalMode {
    const ALL: [(Self, &'static str); 4] = [
        (Self::ClusterCidr, "ClusterCIDR"),
        (Self::NodeCidr, "NodeCIDR"),
        (Self::BridgeInterface, "BridgeInterface"),
        (Self::InterfaceNamePrefix, "InterfaceNamePrefix"),
    ];
}

impl fmt::Display for DetectLocalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for DetectLocalMode {
    type Err = SettingError;

    /// Parses the API's name of a mode; an empty text is the default.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(mode, _)| *mode).ok_or_else(|| {
            let expected = "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
            SettingError(format!("is {text:?}; expected {expected}"))
        })
    }
}

/// Name of a network interface, or a prefix of one: 1 to 15 bytes that both the kernel
/// (`dev_valid_name`) and nft(8) accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let name = is_device_name(text).then(|| Self(text.to_owned()));
        name.ok_or_else(|| {
            SettingError(format!(
                "{text:?} is not the name of an interface: expected 1 to {MAX_NAME} bytes without \
                 spaces and without any of / : \" * \\"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_of_interfaces_are_names() {
        for name in ["br0", "1234eth", "drop", "99", "veth@x", "fifteen-letters", "é"] {
            assert_eq!(name.parse::<InterfaceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_no_interface_can_be_called_is_refused() {
        for name in
            ["", "sixteen-letters-", "a/b", "a b", " a", "a\t", "cali*", "a\"", "a\\", "a:1"]
        {
            let error = name.parse::<InterfaceName>().unwrap_err().to_string();
            let start = format!("{name:?} is not the name of an interface: expected 1 to 15 bytes");
            assert!(error.starts_with(&start), "{error}");
        }
    }

    #[test]
    fn modes_have_the_names_of_the_api() {
        for (mode, name) in DetectLocalMode::ALL {
            assert_eq!(name.parse(), Ok(mode));
            assert_eq!(mode.to_string(), name);
        }
        assert_eq!("".parse(), Ok(DetectLocalMode::ClusterCidr));
        assert!("clusterCIDR".parse::<DetectLocalMode>().is_err());
    }
}
