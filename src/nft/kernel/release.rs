//! The version of the running kernel, for features that cannot be probed.

use std::fmt;

use nix::sys::utsname::uname;

/// Major and minor version of a kernel, such as `6.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Release {
    /// Oldest kernel whose nftables supports our rules, the same as kube-proxy requires.
    pub const OLDEST: Self = Self { major: 5, minor: 13 };
    /// First kernel with chains at the egress of devices.
    pub const EGRESS: Self = Self { major: 5, minor: 16 };
    /// First kernel that deletes what may not exist (`NFT_MSG_DESTROY*`).
    pub const DESTROY: Self = Self { major: 6, minor: 3 };
    /// First kernel with `NFT_TABLE_F_PERSIST`: an owned table persists after its owner.
    pub const PERSISTENT_OWNERSHIP: Self = Self { major: 6, minor: 9 };

    /// First kernel that keeps the name of a device in a flowtable after the device is gone. A
    /// flowtable has taken prefixes of names since 6.18: earlier kernels refuse them.
    pub const DEVICE_NAMES: Self = Self { major: 6, minor: 16 };

    /// First kernel that repeats a lookup of an element that misses during a commit ("restart set
    /// lookup on base_seq change").
    pub const REPEATED_LOOKUPS: Self = Self { major: 6, minor: 17 };

    /// Returns the running kernel's release; `None` if its name does not have the form `6.18.0-x`.
    pub fn running() -> Option<Self> {
        Self::parse(uname().ok()?.release().to_str()?)
    }

    /// Parses the first two numbers of a release name such as `5.10.0-28-amd64`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_release_names_are_ignored() {
        let parsed = |name| Release::parse(name).map(|release| release.to_string());
        assert_eq!(parsed("6.18.44-fc-v657").as_deref(), Some("6.18"));
        assert_eq!(parsed("5.10.0-28-amd64").as_deref(), Some("5.10"));
        assert_eq!(parsed("6.1-rc3").as_deref(), Some("6.1"));
        assert_eq!(parsed("unknown"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(Release { major: 5, minor: 9 } < Release::OLDEST);
        assert!(Release { major: 6, minor: 10 } > Release::PERSISTENT_OWNERSHIP);
    }
}
