//! Statements that send packets elsewhere.

use super::compare::prefix;
use super::kind::Kind;
use super::load::{Load, Term};
use super::printer::Printer;
use crate::abi::*;
use crate::expression::{Dup, Fwd, Nat, Reg, Tproxy};

/// `NF_NAT_RANGE_*` in the order of nft(8).
const FLAGS: [(u32, &str); 3] = [(4, "random"), (0x10, "fully-random"), (8, "persistent")];
/// `NF_NAT_RANGE_NETMAP`.
const NETMAP: u32 = 0x40;

fn flags_text(flags: Option<u32>) -> String {
    let flags = flags.unwrap_or_default();
    let words: Vec<_> =
        FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect();
    if words.is_empty() { String::new() } else { format!(" {}", words.join(",")) }
}

fn family_word(family: u32) -> &'static str {
    if family == u32::from(NFPROTO_IPV6) { "ip6" } else { "ip" }
}

fn address_kind(family: u32) -> Kind {
    if family == u32::from(NFPROTO_IPV6) { Kind::Ipv6 } else { Kind::Ipv4 }
}

impl Printer<'_, '_> {
    pub(super) fn nat(&mut self, nat: &Nat) -> String {
        let word = if nat.kind == 0 { "snat" } else { "dnat" };
        let kind = address_kind(nat.family);
        let from_map =
            |load: Option<Load>| matches!(load, Some(Load { term: Term::Mapped { .. }, .. }));
        let mapped = nat.address.is_some_and(|from| from_map(self.read(from, 0)));
        // The port of a map with concatenated data is in the same contents.
        let port_in_map = mapped && nat.port.is_some_and(|port| self.read(port, 0).is_none());
        let flags = nat.flags.unwrap_or_default();
        let is_inet = self.context.family.of_addresses().is_none();
        let qualifier = if flags & NETMAP != 0 && mapped { "prefix " } else { "" };
        // nft(8) needs the family where a map's data has several fields or ends.
        let of_range = mapped && nat.last_address.is_some() && nat.last_address != nat.address;
        let has_family = is_inet && nat.address.is_some() || port_in_map || of_range;
        let family = if has_family { family_word(nat.family) } else { "" };
        let family = if family.is_empty() { String::new() } else { format!(" {family}") };
        let last = if mapped { None } else { nat.last_address };
        let address = self.addresses((nat.address, last), kind);
        let ports = if port_in_map { None } else { nat.port };
        let ports = self.ports((ports, nat.last_port), !port_in_map);
        let address = match (kind, ports.is_empty(), mapped) {
            (Kind::Ipv6, false, false) if !address.is_empty() => match address.split_once('-') {
                Some((first, last)) => format!("[{first}]-[{last}]"),
                None => format!("[{address}]"),
            },
            _ => address,
        };
        let to = format!("{address}{ports}");
        let to = if to.is_empty() { String::new() } else { format!(" {qualifier}to {to}") };
        format!("{word}{family}{to}{}", flags_text(nat.flags))
    }

    fn addresses(&mut self, (first, last): (Option<Reg>, Option<Reg>), kind: Kind) -> String {
        let Some(first) = first else { return String::new() };
        let bytes = |load: Option<Load>| match load {
            Some(Load { term: Term::Value(value), .. }) => Some(value),
            Some(_) | None => None,
        };
        let last = last.filter(|last| *last != first);
        let values =
            bytes(self.read(first, 0)).zip(last.and_then(|last| bytes(self.read(last, 0))));
        let text = self.register(first, kind, false);
        match (values, last) {
            (Some((lowest, highest)), _) => match prefix(kind, &lowest, &highest) {
                Some(prefix) => format!("{text}{prefix}"),
                None => format!("{text}-{}", kind.text(&highest, self.interfaces)),
            },
            (None, Some(last)) => format!("{text}-{}", self.register(last, kind, false)),
            (None, None) => text,
        }
    }

    fn ports(&mut self, (first, last): (Option<Reg>, Option<Reg>), are_printed: bool) -> String {
        let Some(first) = first.filter(|_| are_printed) else { return String::new() };
        let text = self.register(first, Kind::Number, false);
        match last.filter(|last| *last != first) {
            Some(last) => format!(":{text}-{}", self.register(last, Kind::Number, false)),
            None => format!(":{text}"),
        }
    }

    /// `masquerade` and `redirect`.
    pub(super) fn port_translation(
        &mut self,
        word: &str,
        ports: (Option<Reg>, Option<Reg>),
        flags: Option<u32>,
    ) -> String {
        let ports = self.ports(ports, true);
        let to = if ports.is_empty() { String::new() } else { format!(" to {ports}") };
        format!("{word}{to}{}", flags_text(flags))
    }

    pub(super) fn tproxy(&mut self, tproxy: &Tproxy) -> String {
        let is_inet = self.context.family.of_addresses().is_none();
        let family = match (is_inet, tproxy.family) {
            (true, family) if family != 0 => format!(" {}", family_word(family)),
            _ => String::new(),
        };
        let kind = address_kind(tproxy.family);
        let address = self.addresses((tproxy.address, None), kind);
        let is_bracketed = kind == Kind::Ipv6 && !address.is_empty();
        let address = if is_bracketed { format!("[{address}]") } else { address };
        format!("tproxy{family} to {address}{}", self.ports((tproxy.port, None), true))
    }

    pub(super) fn dup(&mut self, dup: &Dup) -> String {
        let kind = address_kind(u32::from(self.context.family.number()));
        let address = dup.address.map(|address| self.register(address, kind, false));
        let device = dup.device.map(|device| self.register(device, Kind::Interface, true));
        match (address, device) {
            (Some(address), Some(device)) => format!("dup to {address} device {device}"),
            (Some(to), None) | (None, Some(to)) => format!("dup to {to}"),
            (None, None) => "[dup]".to_owned(),
        }
    }

    pub(super) fn fwd(&mut self, fwd: &Fwd) -> String {
        let family = fwd.family.unwrap_or_default();
        let device = self.register(fwd.device, Kind::Interface, true);
        match fwd.address {
            Some(address) => {
                let address = self.register(address, address_kind(family), false);
                format!("fwd {} to {address} device {device}", family_word(family))
            }
            None => format!("fwd to {device}"),
        }
    }
}
