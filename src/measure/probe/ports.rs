//! Source ports of tries, each reused only after the conntrack entry of its last use has expired.
//!
//! Otherwise a try would follow that entry to the old endpoint, whatever the rules are.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::settings::Protocol;

/// Source ports, used in turn.
#[derive(Debug)]
pub(super) struct Ports {
    first: u16,
    /// Time of the last use of each port, since the start of the run.
    used: Vec<Option<Duration>>,
    next: usize,
    rest: Duration,
}

/// Returns the time before a port is reused. Netfilter tracks a TCP connection that its client has
/// reset for 10 s (`nf_conntrack_tcp_timeout_close`) and a UDP flow for 30 s; Cilium tracks a UDP
/// flow for 60 s.
fn rest(protocol: Protocol) -> Duration {
    match protocol {
        Protocol::Tcp => Duration::from_secs(15),
        Protocol::Udp => Duration::from_secs(65),
    }
}

impl Ports {
    /// Returns the local port range of this machine.
    pub(super) fn of_this_machine(protocol: Protocol) -> Self {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
        let range = range.as_deref().and_then(parse).unwrap_or(DEFAULT);
        Self::new(&range, rest(protocol))
    }

    fn new(range: &RangeInclusive<u16>, rest: Duration) -> Self {
        Self { first: *range.start(), used: vec![None; range.len()], next: 0, rest }
    }

    /// Returns the next port; `None` if all were used recently.
    pub(super) fn take(&mut self, now: Duration) -> Option<u16> {
        let used = self.used.get_mut(self.next)?;
        if used.is_some_and(|used| used + self.rest > now) {
            return None;
        }
        *used = Some(now);
        let port = u16::try_from(self.next).ok()?.checked_add(self.first);
        self.next = (self.next + 1) % self.used.len();
        port
    }
}

/// Default port range, where it cannot be read.
const DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

fn parse(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    let range = first.parse().ok()?..=last.trim().parse().ok()?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_not_used_again_before_it_has_rested() {
        let mut ports = Ports::new(&(10..=11), Duration::from_secs(15));
        let at = Duration::from_secs;
        assert_eq!([0, 1, 2].map(|time| ports.take(at(time))), [Some(10), Some(11), None]);
        assert_eq!(ports.take(at(14)), None);
        assert_eq!([15, 15, 16].map(|time| ports.take(at(time))), [Some(10), None, Some(11)]);
    }

    #[test]
    fn the_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse("60999\t32768\n"), None);
        assert_eq!(parse("x"), None);
    }
}
