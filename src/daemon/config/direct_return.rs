//! The settings of direct return, checked.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::routing::{DirectMode, DirectReturn, InterfaceName};

use super::duration;

/// Words of the field `mode`.
const MODES: [(&str, Option<DirectMode>); 3] = [
    (OFF, None),
    ("annotated", Some(DirectMode::Annotated)),
    ("loadBalancers", Some(DirectMode::LoadBalancers)),
];

const OFF: &str = "off";

/// Times for which a connection can be remembered: the kernel removes expired ones about once a
/// second, and each takes memory until then.
const REMEMBER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24);

/// Numbers of connections: at most 2.2 GB of kernel memory, at 130 bytes each.
const CONNECTIONS: RangeInclusive<u32> = 1 << 10..=1 << 24;

/// Most devices: a network device has few links to routers, and the chain names each.
const MOST_DEVICES: usize = 64;

/// Returns the settings of a mode, which are `None` for `off`; the error is the expectation.
pub(super) fn of_mode(word: &str) -> Result<Option<DirectReturn>, String> {
    let known = MODES.iter().find(|(name, _)| *name == word);
    let [off, annotated, load_balancers] = MODES.map(|(word, _)| word);
    let expected = || format!("expected {off}, {annotated} or {load_balancers}");
    let (_, mode) = known.ok_or_else(expected)?;
    Ok(mode.map(DirectReturn::new))
}

/// Returns the word of the mode.
pub(super) fn mode(settings: Option<&DirectReturn>) -> &'static str {
    let mode = settings.map(|settings| settings.mode);
    MODES.iter().find(|(_, known)| *known == mode).map_or(OFF, |(word, _)| word)
}

/// Returns the settings, or the defaults of their parts.
pub(super) fn or_default(settings: Option<&DirectReturn>) -> DirectReturn {
    settings.cloned().unwrap_or(DirectReturn::new(DirectMode::Annotated))
}

/// Checks a list of devices.
pub(super) fn devices(devices: Vec<InterfaceName>) -> Result<Vec<InterfaceName>, Vec<String>> {
    if devices.len() > MOST_DEVICES {
        let found = devices.len();
        return Err(vec![format!("has {found} devices; expected at most {MOST_DEVICES}")]);
    }
    let repeated = devices.iter().enumerate().filter(|(i, it)| devices[..*i].contains(it));
    let errors: Vec<_> =
        repeated.map(|(_, it)| format!("{:?} is there twice", it.as_str())).collect();
    if errors.is_empty() { Ok(devices) } else { Err(errors) }
}

/// Checks the time for which a connection is remembered.
pub(super) fn remember(time: Duration) -> Result<Duration, Vec<String>> {
    duration::within(time, REMEMBER)
}

/// Checks the limit of connections.
pub(super) fn connections(limit: u32) -> Result<u32, Vec<String>> {
    let (least, most) = CONNECTIONS.into_inner();
    let expected = || vec![format!("is {limit}; expected {least} to {most}")];
    if CONNECTIONS.contains(&limit) { Ok(limit) } else { Err(expected()) }
}

/// Checks the port of the tunnel: 0 stands for none.
pub(super) fn vxlan_port(port: u32) -> Result<Option<NonZeroU16>, Vec<String>> {
    let expected = || vec![format!("is {port}; expected 0, or a port up to {}", u16::MAX)];
    u16::try_from(port).map(NonZeroU16::new).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_word() {
        for (word, expected) in MODES {
            let settings = of_mode(word).unwrap();
            assert_eq!(settings.as_ref().map(|it| it.mode), expected);
            assert_eq!(mode(settings.as_ref()), word);
        }
        for wrong in ["", "Off", "on", "dsr"] {
            let error = of_mode(wrong).unwrap_err();
            assert_eq!(error, "expected off, annotated or loadBalancers");
        }
    }

    #[test]
    fn times_and_numbers_have_bounds() {
        let seconds = |seconds| remember(Duration::from_secs(seconds));
        for right in [1, 300, 86_400] {
            assert_eq!(seconds(right), Ok(Duration::from_secs(right)));
        }
        assert_eq!(seconds(0).unwrap_err(), ["is 0s; expected 1s to 24h0m0s"]);
        assert_eq!(seconds(86_401).unwrap_err(), ["is 24h0m1s; expected 1s to 24h0m0s"]);
        for right in [1_024, 262_144, 16_777_216] {
            assert_eq!(connections(right), Ok(right));
        }
        for wrong in [0, 1_023, 16_777_217, u32::MAX] {
            let expected = format!("is {wrong}; expected 1024 to 16777216");
            assert_eq!(connections(wrong).unwrap_err(), [expected]);
        }
    }

    #[test]
    fn a_tunnel_has_a_port_or_is_off() {
        assert_eq!(vxlan_port(0), Ok(None));
        assert_eq!(vxlan_port(65_535), Ok(NonZeroU16::new(65_535)));
        let expected = ["is 65536; expected 0, or a port up to 65535"];
        assert_eq!(vxlan_port(65_536).unwrap_err(), expected);
    }

    #[test]
    fn a_list_of_devices_has_64_at_most_and_each_once() {
        let named = |name: &str| name.parse::<InterfaceName>().unwrap();
        let many = |count| (0..count).map(|i| named(&format!("eth{i}"))).collect::<Vec<_>>();
        assert_eq!(devices(many(0)), Ok(vec![]));
        assert_eq!(devices(many(64)), Ok(many(64)));
        assert_eq!(devices(many(65)).unwrap_err(), ["has 65 devices; expected at most 64"]);
        let twice = ["a", "b", "a"].map(named).to_vec();
        assert_eq!(devices(twice).unwrap_err(), ["\"a\" is there twice"]);
    }
}
