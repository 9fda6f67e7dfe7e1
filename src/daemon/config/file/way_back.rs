//! Settings that kube-proxy refuses and this program takes: with one, there is no way back.
//!
//! The rules are those of Kubernetes 1.36: `pkg/proxy/apis/config/validation`, and the types of the
//! fields.

use engine::routing::ranges::without_leading_zeros;
use ipnet::IpNet;
use serde_json::Value;

use super::field_reader::{Origin, Reader};
use crate::config::duration::signed;
use crate::config::fields::{CLUSTER_CIDR, DETECT_LOCAL_MODE};
use crate::config::listen_address;
use crate::config::notes::Notes;
use crate::config::options::{OptionKind, shortened};
use crate::config::section::Section;

/// Gates that cannot be off.
const LOCKED: [&str; 3] =
    ["MultiCIDRServiceAllocator", "NFTablesProxyMode", "PreferSameTrafficDistribution"];

/// Durations that may be null: they are pointers in Go.
const OPTIONAL: [&str; 2] = ["conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout"];

/// The only version whose hidden metrics can be shown: the one before kube-proxy's.
const SHOWN_VERSION: &str = "1.35";

const SECOND: i64 = 1_000_000_000;

impl Reader<'_> {
    /// Notes a value that kube-proxy refuses.
    pub(super) fn note_refusal(
        &self,
        path: &str,
        kind: OptionKind,
        value: &Value,
        notes: &mut Notes,
    ) {
        if matches!(self.origin, Origin::Own) || path.starts_with("deltaproxy") {
            return;
        }
        let is_file = matches!(self.origin, Origin::File(_));
        let is_wide = value.as_i64().is_some_and(|it| i32::try_from(it).is_err());
        let expected = if kind == OptionKind::Duration && is_file && !is_duration(path, value) {
            Some("a duration in quotes")
        } else if kind == OptionKind::Whole && is_wide {
            Some("a number of 32 bits")
        } else if value.is_null() && !path.starts_with("featureGates.") {
            None
        } else {
            self.expected(path, value, &Section::of(notes))
        };
        notes.refused.extend(expected.map(|it| self.refusal(path, &shortened(value), it)));
    }

    /// Notes periods of the mode that kube-proxy refuses.
    pub(super) fn note_periods(&self, notes: &mut Notes) {
        let is_file = matches!(self.origin, Origin::File(_));
        let mode = match Section::of(notes).mode {
            // One flag is for both.
            "iptables" if !is_file => "nftables",
            mode => mode,
        };
        let period = |field: &str, default: i64| {
            let path = format!("{mode}.{field}");
            let time = self.text(&path).and_then(signed);
            // In a file, zero means the default.
            (path, time.filter(|time| *time != 0 || !is_file).unwrap_or(default))
        };
        let (sync_path, sync) = period("syncPeriod", 30 * SECOND);
        let least = if mode == "ipvs" && is_file { 0 } else { SECOND };
        let (min_path, min) = period("minSyncPeriod", least);
        let refused = match (sync, min) {
            _ if matches!(self.origin, Origin::Own) => None,
            (..=0, _) => Some((&sync_path, "more than 0s".to_owned())),
            (_, ..0) => Some((&min_path, "0s or more".to_owned())),
            _ if min <= sync => None,
            _ if self.text(&min_path).is_some() => {
                Some((&min_path, format!("at most {sync_path}")))
            }
            _ => Some((&sync_path, format!("at least {min_path}, which is 1s"))),
        };
        notes.refused.extend(refused.map(|(path, expected)| {
            let shown = self.found(path).map_or_else(String::new, shortened);
            self.refusal(path, &shown, &expected)
        }));
    }

    fn refusal(&self, path: &str, shown: &str, expected: &str) -> String {
        format!("{}: is {shown}; it expects {expected}", self.place(path))
    }

    /// Returns what kube-proxy expects of a field instead of `value`.
    fn expected(&self, path: &str, value: &Value, section: &Section) -> Option<&'static str> {
        let is_file = matches!(self.origin, Origin::File(_));
        let text = value.as_str().unwrap_or_default();
        let number = value.as_i64().unwrap_or_default();
        let time = signed(text).unwrap_or(1);
        let entries = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
        let (is_right, expected) = match path {
            "clientConnection.burst" => (number >= 0, "0 or more"),
            "configSyncPeriod" => (time >= i64::from(!is_file), "more than 0s"),
            "healthzBindAddress" => (text.is_empty() || is_listened(text), LISTENED),
            "metricsBindAddress" => (text.is_empty() && is_file || is_listened(text), LISTENED),
            "iptables.masqueradeBit" => ((0..=31).contains(&number), "a bit from 0 to 31"),
            "ipvs.tcpTimeout" | "ipvs.tcpFinTimeout" | "ipvs.udpTimeout" if section.is_ipvs() => {
                (time >= 0, "0s or more")
            }
            "ipvs.excludeCIDRs" if section.is_ipvs() => (entries().all(is_range), RANGES),
            "nodePortAddresses" => {
                (entries().eq(["primary"]) || entries().all(is_range), "ranges, or primary alone")
            }
            CLUSTER_CIDR => {
                let is_used = self.text(DETECT_LOCAL_MODE).is_none_or(|it| it == "ClusterCIDR");
                let is_unset = text.is_empty() && is_file;
                (!is_used || is_unset || text.split(',').all(is_range), RANGES)
            }
            "portRange" => (is_port_range(text), "ports such as 300-2000"),
            "showHiddenMetricsForVersion" => {
                (["", SHOWN_VERSION].contains(&text), "the minor version before its own")
            }
            "logging.flushFrequency" => {
                (value.is_i64() || signed(text).is_some(), "a duration, or nanoseconds")
            }
            "logging.vmodule" => {
                let is_text = self.text("logging.format").is_none_or(|format| format == "text");
                let is_list = value.as_array().is_some_and(|items| items.is_empty() || is_text);
                (is_list, "a list, which is empty in format json")
            }
            "logging.options" => {
                let gate = self.found("featureGates.LoggingAlphaOptions");
                (gate.is_some_and(|it| it == true) || !is_alpha(value), "gate LoggingAlphaOptions")
            }
            _ => {
                let gate = path.strip_prefix("featureGates.");
                (value == true || gate.is_none_or(|gate| !LOCKED.contains(&gate)), "true, always")
            }
        };
        (!is_right).then_some(expected)
    }
}

const LISTENED: &str = "IP or IP:port";
const RANGES: &str = "ranges without blanks";

fn is_duration(path: &str, value: &Value) -> bool {
    value.as_str().is_some_and(|text| signed(text).is_some())
        || value.is_null() && OPTIONAL.contains(&path)
}

fn is_listened(text: &str) -> bool {
    text == text.trim() && !text.ends_with(']') && listen_address::parse(text, 1).is_ok()
}

fn is_range(text: &str) -> bool {
    without_leading_zeros(text).parse::<IpNet>().is_ok()
}

fn is_port_range(text: &str) -> bool {
    let ports: Vec<_> =
        text.trim().split(['-', '+']).map(|port| port.trim().parse::<u16>()).collect();
    text.trim().is_empty() || ports.len() <= 2 && ports.iter().all(Result::is_ok)
}

/// Returns whether options of the log are set that only a gate allows.
fn is_alpha(options: &Value) -> bool {
    let formats = options.as_object().into_iter().flatten();
    let options = formats.filter_map(|(_, format)| format.as_object()).flatten();
    options.map(|(_, value)| value).any(|it| !it.is_null() && it != false && it != 0 && it != "0")
}
