//! Values of options while a configuration is read, and the parsers of single values.

use std::fmt::Display;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use engine::counters::Counters;
use engine::routing::local::DetectLocalMode;
use engine::routing::ranges::parse;
use engine::routing::{DirectReturn, LocalDetection, NodePortAddresses, Routing};
use ipnet::IpNet;
use serde_json::Value;

use crate::config::log::LogFlags;
use crate::config::notes::Notes;
use crate::config::scheduler::ChosenScheduler;
use crate::config::{
    CHECK_PERIOD, Config, ConntrackSettings, ContentTypes, NodeReadiness, Periods, Source,
    direct_return, duration, listen_address,
};

/// Values of options: a [`Config`], and what it takes from several of them or from flags.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::config) struct Values {
    pub(in crate::config) kubeconfig: Option<PathBuf>,
    pub(in crate::config) hostname_override: Option<String>,
    pub(in crate::config) log: LogFlags,
    pub(in crate::config) detect_local_mode: DetectLocalMode,
    pub(in crate::config) scheduler: ChosenScheduler,
    /// Without the settings above, and with a placeholder for the node's name.
    pub(in crate::config) config: Config,
    pub(in crate::config) notes: Notes,
    /// SHA-256 of the file in hexadecimal; `None` without a file.
    pub(in crate::config) sha256: Option<String>,
}

impl Default for Config {
    /// Returns the defaults of kube-proxy in mode nftables.
    fn default() -> Self {
        Self {
            node_name: String::new(),
            source: Source::InCluster,
            content_types: ContentTypes::default(),
            log: LogFlags::default().or(LogFlags::default()),
            routing: Routing::default(),
            periods: Periods { min_sync: Duration::ZERO, check: CHECK_PERIOD },
            owns_tables: true,
            node_readiness: NodeReadiness::default(),
            healthz_bind_address: Some(listen_address::DEFAULT_HEALTHZ),
            metrics_bind_address: Some(listen_address::DEFAULT_METRICS),
            bind_address_hard_fail: false,
            conntrack: ConntrackSettings::of_kube_proxy(),
            oom_score_adj: Some(DEFAULT_OOM_SCORE_ADJ),
        }
    }
}

impl Values {
    /// Sets the node's address, whose family is that of the default addresses to listen on.
    pub(super) fn set_bind_address(&mut self, value: &Value) -> Set {
        let text = text(value);
        let expected = || vec![format!("is {text:?}; expected an IP address")];
        let address = listen_address::ip(text).ok_or_else(expected)?.to_canonical();
        self.config.routing.node_ip = Some(address).filter(|address| !address.is_unspecified());
        if address.is_ipv6() {
            let on = |ip: Ipv6Addr, port| Some(SocketAddr::new(ip.into(), port));
            self.config.healthz_bind_address =
                on(Ipv6Addr::UNSPECIFIED, listen_address::HEALTHZ_PORT);
            self.config.metrics_bind_address =
                on(Ipv6Addr::LOCALHOST, listen_address::METRICS_PORT);
        }
        Ok(())
    }

    /// Sets the mode of local detection. The field of another mode than NodeCIDR sets its value.
    pub(super) fn set_detect_local_mode(&mut self, value: &Value) -> Set {
        self.detect_local_mode = parsed(value)?;
        if self.detect_local_mode == DetectLocalMode::NodeCidr {
            self.config.routing.local_detection = LocalDetection::NodeCidr;
        }
        Ok(())
    }

    /// Sets the value of the mode of local detection.
    pub(super) fn set_detection<T>(
        &mut self,
        detection: fn(T) -> LocalDetection,
        value: &Value,
    ) -> Set
    where
        T: FromStr<Err: Display>,
    {
        put(&mut self.config.routing.local_detection, parsed(value).map(detection))
    }

    /// Sets the addresses of node ports. An empty list leaves the default, which depends on the
    /// mode.
    pub(super) fn set_node_port_addresses(&mut self, value: &Value) -> Set {
        let entries: Vec<_> = texts(value).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let (addresses, errors) = NodePortAddresses::read_entries(&entries);
        let place = &mut self.config.routing.node_port_addresses;
        *place = NodePortAddresses { admits_localhost: place.admits_localhost, ..addresses };
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// The result of setting an option; the errors are its value and the expectation.
pub(super) type Set = Result<(), Vec<String>>;

/// Sets `place`, if the value is valid.
pub(super) fn put<T>(place: &mut T, value: Result<T, Vec<String>>) -> Set {
    *place = value?;
    Ok(())
}

/// Sets a part of settings, which is checked even if they are off.
pub(super) fn put_part<S, T>(
    settings: &mut Option<S>,
    part: fn(&mut S) -> &mut T,
    value: Result<T, Vec<String>>,
) -> Set {
    let value = value?;
    if let Some(settings) = settings {
        *part(settings) = value;
    }
    Ok(())
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, Vec<String>> {
    text(value).parse().map_err(|error: T::Err| vec![error.to_string()])
}

/// Reads a number of 32 bits.
pub(super) fn count(value: &Value) -> Result<u32, Vec<String>> {
    number(value, 0..=u32::MAX, &format!("a number from 0 to {}", u32::MAX))
}

/// Reads a number of a range.
pub(super) fn number<T: TryFrom<i64> + PartialOrd>(
    value: &Value,
    range: std::ops::RangeInclusive<T>,
    expected: &str,
) -> Result<T, Vec<String>> {
    let number = value.as_i64().and_then(|number| T::try_from(number).ok());
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| vec![format!("is {value}; expected {expected}")])
}

pub(super) fn time(value: &Value) -> Result<Duration, Vec<String>> {
    // The number 0 is the only one that is a duration.
    let Some(text) = value.as_str() else { return Ok(Duration::ZERO) };
    duration::parse(text).map_err(|error| vec![error.to_string()])
}

/// Reads an address to listen on; an empty text is none.
pub(super) fn listen(value: &Value, port: u16) -> Result<Option<SocketAddr>, Vec<String>> {
    match text(value) {
        "" => Ok(None),
        text => {
            listen_address::parse(text, port).map(Some).map_err(|error| vec![error.to_string()])
        }
    }
}

/// Reads a list of address ranges.
pub(super) fn ranges(value: &Value) -> Result<Vec<IpNet>, Vec<String>> {
    entries(value, parse)
}

/// Reads a list of texts.
pub(super) fn each<T>(value: &Value) -> Result<Vec<T>, Vec<String>>
where
    T: FromStr<Err: Display>,
{
    entries(value, T::from_str)
}

/// Returns the entries of a list, without blank ones.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let entries = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    entries.map(str::trim).filter(|entry| !entry.is_empty())
}

fn entries<T, E: Display>(
    value: &Value,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Vec<String>> {
    let entries = texts(value);
    let (mut parsed, mut errors) = (Vec::new(), Vec::new());
    for entry in entries {
        match parse(entry) {
            Ok(value) => parsed.push(value),
            Err(error) => errors.push(error.to_string()),
        }
    }
    if errors.is_empty() { Ok(parsed) } else { Err(errors) }
}

/// Reads a text, of which an empty one is none.
pub(super) fn optional<T>(value: &Value) -> Result<Option<T>, Vec<String>>
where
    T: FromStr<Err: Display>,
{
    if text(value).is_empty() { Ok(None) } else { parsed(value).map(Some) }
}

/// Reads `on` or `off`, which YAML parses as booleans where they have no quotes.
pub(super) fn switch(value: &Value) -> Result<bool, Vec<String>> {
    let is_on = match value.as_str() {
        Some("on") => Some(true),
        Some("off") => Some(false),
        _ => value.as_bool(),
    };
    is_on.ok_or_else(|| vec![format!("is {}; expected off or on", shortened(value))])
}

/// Reads the mode of direct return; YAML parses `off` without quotes as false.
pub(super) fn direct_mode(value: &Value) -> Result<Option<DirectReturn>, Vec<String>> {
    if value == false {
        return Ok(None);
    }
    let wrong = |expected| vec![format!("is {}; {expected}", shortened(value))];
    direct_return::of_mode(text(value)).map_err(wrong)
}

/// Reads the elements that count; YAML parses `off` without quotes as false.
pub(super) fn counters(value: &Value) -> Result<Counters, Vec<String>> {
    if value.is_string() {
        return parsed(value);
    }
    let expected = "expected off, services or endpoints";
    let wrong = || vec![format!("is {}; {expected}", shortened(value))];
    if value == false { Ok(Counters::Off) } else { Err(wrong()) }
}

/// Formats the value as JSON, truncated for a log line.
pub(in crate::config) fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Most characters of an invalid value in an error.
const MAX_SHOWN: usize = 60;

/// kube-proxy's default: the OOM killer chooses nearly every other process first.
const DEFAULT_OOM_SCORE_ADJ: i16 = -999;
