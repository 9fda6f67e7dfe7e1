//! The text of one value: an address, a number, a duration.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::columns;
use engine::model::Target;
use engine::ruleset::Frontend;
use nft::family::Family;

use crate::show::services::Services;
use crate::show::view::View;

/// Returns the address and port of a target.
pub(in crate::show) fn socket(target: Target) -> SocketAddr {
    SocketAddr::new(target.address, target.port.get())
}

impl Services {
    /// Formats a frontend as `10.96.0.1:443/tcp`; a node port with the address of the node that
    /// serves it: `192.168.50.2:30080/tcp`, or `192.168.50.2+1:30080/tcp` if one more does. A `*`,
    /// for IPv6 `[*]`, stands for all addresses, and for none.
    pub(in crate::show) fn address(&self, frontend: &Frontend) -> String {
        let Frontend::NodePort { family, protocol, port } = *frontend else {
            return frontend.to_string();
        };
        let addresses = self.node_port_addresses(family);
        let first = match (addresses.and_then(BTreeSet::first), family) {
            (Some(IpAddr::V4(first)), _) => first.to_string(),
            (Some(IpAddr::V6(first)), _) => format!("[{first}]"),
            (None, Family::Ip) => "*".to_owned(),
            (None, Family::Ip6) => "[*]".to_owned(),
        };
        match addresses.map_or(0, BTreeSet::len) {
            0 | 1 => format!("{first}:{port}/{protocol}"),
            count => format!("{first}+{}:{port}/{protocol}", count - 1),
        }
    }
}

impl View<'_> {
    /// Formats a frontend like [`Services::address`].
    pub(super) fn address(&self, frontend: &Frontend) -> String {
        self.services.address(frontend)
    }
}

/// Writes aligned lines below their titles: first `texts`, then numbers.
pub(in crate::show) fn write_table(
    out: &mut dyn Write,
    texts: usize,
    titles: &[&str],
    lines: impl Iterator<Item = Vec<String>>,
) -> io::Result<()> {
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    write_columns(out, texts, &[titles].into_iter().chain(lines).collect::<Vec<_>>())
}

/// Writes aligned columns: the first `texts` to the left, the others, numbers, to the right.
pub(super) fn write_columns(
    out: &mut dyn Write,
    texts: usize,
    lines: &[impl AsRef<[String]>],
) -> io::Result<()> {
    let widths = columns::widths(lines);
    lines.iter().try_for_each(|line| {
        writeln!(out, "{}", columns::line(line.as_ref(), &widths, |column| column >= texts))
    })
}

/// A value, or `-` if unknown.
pub(in crate::show) struct OrDash<T>(pub(in crate::show) Option<T>);

impl<T: fmt::Display> fmt::Display for OrDash<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.pad("-"),
        }
    }
}

/// Formats a duration as `3d4h`, `2h5m`, `7m10s` or `12s`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Formats a part as `12.5%`; `-` if the whole is zero.
pub(super) fn percent(part: u32, whole: u32) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => share(f64::from(part) / f64::from(whole)),
    }
}

pub(super) fn share(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (430, "7m10s"), (7_500, "2h5m"), (273_600, "3d4h")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
