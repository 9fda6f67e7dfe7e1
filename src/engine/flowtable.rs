//! Settings of the flowtable: which connections it takes over, and at which devices.

use std::fmt;
use std::str::FromStr;

use crate::setting_error::SettingError;

/// Connections that skip the forwarding path of the kernel, and the devices at which they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Size from which on a connection is offloaded.
    pub after: Threshold,
    /// Devices whose packets are looked up.
    pub devices: Devices,
}

/// Packets or bytes of a connection, both directions together, after which it is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Number of packets.
    Packets(u64),
    /// Number of bytes.
    Bytes(u64),
}

/// Connections of a few short requests stay below it, so that only connections that last are
/// offloaded.
impl Default for Threshold {
    fn default() -> Self {
        Self::Packets(20)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(number) => write!(f, "{number}packets"),
            Self::Bytes(number) => write!(f, "{number}bytes"),
        }
    }
}

impl FromStr for Threshold {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let wrong = || {
            let expected = "a number of packets or bytes, such as 20packets or 65536bytes";
            SettingError(format!("{text:?} is not {expected}"))
        };
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number = number.parse().map_err(|_| wrong())?;
        match unit.trim_start() {
            "packets" => Ok(Self::Packets(number)),
            "bytes" => Ok(Self::Bytes(number)),
            _ => Err(wrong()),
        }
    }
}

/// Patterns of device names, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<Pattern>);

/// A pattern of device names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `*`: all but the loopback device and devices that belong to another one, such as the ports
    /// of a bridge.
    All,
    /// `cali*`: all names with this prefix.
    Prefix(String),
    /// `eth0`: this name.
    Name(String),
}

/// The properties of a device that [`Devices`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// It is the loopback device.
    pub is_loopback: bool,
    /// It belongs to another device: a bridge, a bond, a VRF.
    pub has_master: bool,
}

impl Default for Devices {
    fn default() -> Self {
        Self(vec![Pattern::All])
    }
}

/// Most bytes of a device's name: `IFNAMSIZ` less the NUL.
pub(crate) const MAX_NAME: usize = 15;

impl Devices {
    /// Returns whether a device is selected.
    pub fn include(&self, name: &str, traits: Traits) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::All => !traits.is_loopback && !traits.has_master,
            Pattern::Prefix(prefix) => name.starts_with(&**prefix),
            Pattern::Name(own) => name == own,
        })
    }

    /// Returns the patterns.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// Returns the prefixes of the list that no other prefix covers.
    pub fn prefixes(&self) -> Vec<&str> {
        let all = self.0.iter().filter_map(|pattern| match pattern {
            Pattern::Prefix(prefix) => Some(&**prefix),
            Pattern::All | Pattern::Name(_) => None,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        // After sorting, a shorter prefix is before those that it covers.
        all.dedup_by(|longer, shorter| longer.starts_with(&**shorter));
        all
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pattern) in self.0.iter().enumerate() {
            f.write_str(if i > 0 { "," } else { "" })?;
            match pattern {
                Pattern::All => f.write_str("*")?,
                Pattern::Prefix(prefix) => write!(f, "{prefix}*")?,
                Pattern::Name(name) => f.write_str(name)?,
            }
        }
        Ok(())
    }
}

impl FromStr for Devices {
    type Err = SettingError;

    /// Parses patterns with commas between them.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        text.split(',').map(str::trim).map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Pattern {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        if text == "*" {
            return Ok(Self::All);
        }
        let (name, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if !is_device_name(name) {
            return Err(SettingError(format!(
                "{text:?} is not a pattern of device names: expected a name of 1 to {MAX_NAME} bytes such \
                 as eth0, a prefix such as cali*, or *"
            )));
        }
        Ok(if is_prefix { Self::Prefix(name.to_owned()) } else { Self::Name(name.to_owned()) })
    }
}

/// Returns whether a device can have this name, or a longer one that begins with it. The kernel
/// (`dev_valid_name`) accepts `"`, `*` and `\`, but nft(8) cannot write all of them.
pub(crate) fn is_device_name(text: &str) -> bool {
    let wrong =
        |letter: char| letter.is_whitespace() || letter.is_control() || r#"/:"*\"#.contains(letter);
    (1..=MAX_NAME).contains(&text.len()) && !text.contains(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_number_with_a_unit() {
        for (text, threshold) in [
            ("20packets", Threshold::Packets(20)),
            ("0 packets", Threshold::Packets(0)),
            ("65536 bytes", Threshold::Bytes(65_536)),
        ] {
            assert_eq!(text.parse(), Ok(threshold));
        }
        for wrong in ["", "20", "packets", "-1packets", "20 kB", "99999999999999999999bytes"] {
            assert_eq!(
                wrong.parse::<Threshold>(),
                Err(SettingError(format!(
                    "{wrong:?} is not a number of packets or bytes, such as 20packets or 65536bytes"
                )))
            );
        }
        assert_eq!(Threshold::default().to_string().parse(), Ok(Threshold::default()));
    }

    #[test]
    fn a_star_leaves_out_loopback_and_ports_of_bridges_and_names_do_not() {
        let plain = Traits { is_loopback: false, has_master: false };
        let port = Traits { has_master: true, ..plain };
        let loopback = Traits { is_loopback: true, ..plain };
        let all = Devices::default();
        assert!(all.include("eth0", plain));
        assert!(!all.include("veth1", port));
        assert!(!all.include("lo", loopback));
        let some: Devices = "eth0, cali*".parse().unwrap();
        assert!(some.include("eth0", plain) && some.include("cali1", port));
        assert!(!some.include("eth01", plain) && !some.include("veth1", plain));
        assert_eq!(some.to_string(), "eth0,cali*");
    }

    #[test]
    fn a_list_without_a_valid_pattern_is_refused() {
        for wrong in ["", "eth0,", "a b", "a**", "sixteen-letters-", "a/b", "a:1"] {
            assert!(wrong.parse::<Devices>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_prefix_that_another_one_covers_is_left_out() {
        let devices: Devices = "vet*,eth0,cali*,veth*,cal*".parse().unwrap();
        assert_eq!(devices.prefixes(), ["cal", "vet"]);
    }
}
