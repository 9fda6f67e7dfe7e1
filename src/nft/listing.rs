//! Text of any program's rule as printed by `nft list`, from its instructions.
//!
//! For our own rules, the text equals that of [`super::Rule::text`]. For rules of other programs it
//! is similar to a listing; unknown parts are in brackets.

use std::fmt::Write;
use std::net::IpAddr;

use super::abi::*;
use super::element::write_class_id;
use super::text::Time;
use super::word::{ADDRESS_TYPES, CT_STATES, CT_STATUSES, bits, protocol};
use super::{Expr, Instruction, Register, key};

/// Returns the rule as printed by `nft list` in a table of `family`, `NFPROTO_*`.
pub fn rule_text(family: u8, instructions: &[Instruction]) -> String {
    let mut listing = Listing { family, loads: Vec::new(), statements: Vec::new() };
    instructions.iter().for_each(|instruction| listing.add(instruction));
    listing.statements.join(" ")
}

/// The contents of a register, as text.
#[derive(Clone, Debug)]
struct Load {
    word: u8,
    /// Number of four-byte registers that it fills.
    words: u8,
    text: String,
    kind: Kind,
    /// `(value & mask) ^ xor`.
    masked: Option<(Vec<u8>, Vec<u8>)>,
}

/// The print format of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An address, of which only this number of leading bytes may be loaded.
    Address(u32),
    /// A number in network byte order.
    Port,
    Protocol,
    Mark,
    Class,
    /// A number in host byte order.
    Number,
    /// A number of eight bytes, compared in network byte order.
    LongNumber,
    InterfaceName,
    CtState,
    CtStatus,
    AddressType,
    Bytes,
}

struct Listing {
    family: u8,
    /// Loads since the last statement that used them.
    loads: Vec<Load>,
    statements: Vec<String>,
}

impl Listing {
    fn add(&mut self, instruction: &Instruction) {
        match instruction {
            Instruction::Expr(expr) => self.add_expr(expr),
            Instruction::Range { from, negated, first, last } => {
                self.range(*from, *negated, first, last);
            }
            Instruction::Draw { modulus, offset, to, word } => {
                let offset = if *offset == 0 { String::new() } else { format!(" offset {offset}") };
                self.load(*to, 1, format!("{word} mod {modulus}{offset}"), Kind::Number);
            }
            Instruction::Translate { source, address, port, .. } => {
                self.translate(if *source { "snat" } else { "dnat" }, *address, *port);
            }
            Instruction::Redirect { port } => self.translate("redirect", None, *port),
            Instruction::CtSet { key, from } => {
                let value = self.take(*from, None);
                self.say(format!("ct {} set {value}", ct_name(*key).0));
            }
            Instruction::Notrack => self.say("notrack"),
            Instruction::Fib { flags, result, to } => {
                let result = if *result == 1 { "oif" } else { "oifname" };
                self.load(*to, 1, format!("fib {} {result}", fib_flags(*flags)), Kind::Number);
            }
            Instruction::Neutral(text) | Instruction::Limited(text) => self.say(text.clone()),
            Instruction::Unknown(name) => self.say(format!("[{name}]")),
        }
    }

    fn add_expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Payload { base, offset, length, to } => {
                let (text, kind) = self.field(*base, *offset, *length);
                self.load(*to, words(*length), text, kind);
            }
            Expr::Meta { key, to } => {
                let (text, kind) = meta(*key);
                let length = if kind == Kind::InterfaceName { 4 } else { 1 };
                self.load(*to, length, text, kind);
            }
            Expr::MetaSet { key, from } => self.set_meta(*key, *from),
            Expr::Ct { key, to } => {
                let (name, kind) = ct_name(*key);
                self.load(*to, 1, format!("ct {name}"), kind);
            }
            Expr::CtOriginal { key, to } => self.load_original(*key, *to),
            Expr::FibType { flags, to } => {
                self.load(*to, 1, format!("fib {} type", fib_flags(*flags)), Kind::AddressType);
            }
            Expr::Numgen { modulus, to } => {
                self.load(*to, 1, format!("numgen random mod {modulus}"), Kind::Number);
            }
            Expr::Jhash { from, length, modulus, seed, to } => {
                let of = self.take_some(*from, words(*length));
                let text = format!("jhash {of} mod {modulus} seed {seed:#x}");
                self.load(*to, 1, text, Kind::Number);
            }
            Expr::Cmp { from, negated, value } => {
                self.compare(*from, if *negated { "!= " } else { "" }, value);
            }
            Expr::Order { from, order, value } => {
                self.compare(*from, &format!("{} ", order.word()), value);
            }
            Expr::Byteorder { .. } => {}
            Expr::Bitwise { from, to, mask, xor } => self.mask(*from, *to, mask, xor),
            Expr::Lookup { set, from, to, negated } => self.look_up(set, *from, *to, *negated),
            Expr::Immediate { value, to } => {
                let length = words(u32::try_from(value.len()).unwrap_or_default());
                self.load(*to, length, bytes(value), Kind::Bytes);
                if let Some(load) = self.loads.last_mut() {
                    load.masked = Some((Vec::new(), value.clone()));
                }
            }
            Expr::Verdict(verdict) => self.say(verdict.to_string()),
            Expr::Dnat { address, port, .. } => self.translate("dnat", Some(*address), *port),
            Expr::Masquerade { flags } => self.say(match *flags {
                NF_NAT_RANGE_PROTO_RANDOM_FULLY => "masquerade fully-random",
                _ => "masquerade",
            }),
            Expr::Reject { kind, code } => self.say(reject(*kind, *code)),
            Expr::Dynset { operation, set, key, data, timeout } => {
                let value = data.map(|data| self.key_text(data, None));
                let key = self.take(*key, *data);
                let mut text = format!("{} @{set} {{ {key}", operation.word());
                if let Some(timeout) = timeout {
                    let timeout = Time(std::time::Duration::from_millis(*timeout));
                    let _ = write!(text, " timeout {timeout}");
                }
                if let Some(value) = value {
                    let _ = write!(text, " : {value}");
                }
                self.say(text + " }");
            }
            Expr::FlowOffload(flowtable) => self.say(format!("flow add @{flowtable}")),
            Expr::Other(name) => self.say(format!("[{name}]")),
        }
    }

    fn load_original(&mut self, number: u32, to: Register) {
        let (words, name, kind) = match number {
            NFT_CT_DST_IP => (1, "ip daddr".to_owned(), Kind::Address(4)),
            NFT_CT_DST_IP6 => (4, "ip6 daddr".to_owned(), Kind::Address(16)),
            NFT_CT_PROTO_DST => (1, "proto-dst".to_owned(), Kind::Port),
            number => (1, ct_name(number).0, Kind::Bytes),
        };
        self.load(to, words, format!("ct original {name}"), kind);
    }

    fn say(&mut self, text: impl Into<String>) {
        self.statements.push(text.into());
    }

    fn load(&mut self, to: Register, words: u8, text: String, kind: Kind) {
        let Register::Word(word) = to else { return };
        self.loads.retain(|load| load.word != word);
        self.loads.push(Load { word, words, text, kind, masked: None });
    }

    fn find(&self, from: Register) -> Option<&Load> {
        self.loads.iter().find(|load| Register::Word(load.word) == from)
    }

    /// Returns the text of a key and drops all loads.
    fn take(&mut self, from: Register, end: Option<Register>) -> String {
        let text = self.key_text(from, end);
        self.loads.clear();
        text
    }

    /// Returns the text of the loads of `words` registers and drops them.
    fn take_some(&mut self, from: Register, words: u8) -> String {
        let Register::Word(word) = from else { return "?".to_owned() };
        let end = word.saturating_add(words);
        let text = self.key_text(from, Some(Register::Word(end)));
        self.loads.retain(|load| !(word..end).contains(&load.word));
        text
    }

    /// Returns the fields of the key from one register up to another.
    fn key_text(&self, from: Register, end: Option<Register>) -> String {
        let mut fields = Vec::new();
        let mut next = from;
        while let Some(load) = self.find(next).filter(|_| Some(next) != end) {
            fields.push(load.with_mask());
            next = Register::Word(load.word + load.words.max(1));
        }
        if fields.is_empty() { "?".to_owned() } else { fields.join(" . ") }
    }

    fn compare(&mut self, from: Register, operator: &str, value: &[u8]) {
        let load = self.find(from).cloned();
        self.loads.clear();
        let Some(load) = load else { return self.say(format!("? {operator}{}", bytes(value))) };
        let text = load.comparison(operator, value);
        self.say(text);
    }

    fn range(&mut self, from: Register, negated: bool, first: &[u8], last: &[u8]) {
        let load = self.find(from).cloned();
        self.loads.clear();
        let not = if negated { "!= " } else { "" };
        let (text, kind) = load.map_or(("?".to_owned(), Kind::Bytes), |it| (it.text, it.kind));
        self.say(format!("{text} {not}{}-{}", kind.text(first), kind.text(last)));
    }

    fn mask(&mut self, from: Register, to: Register, mask: &[u8], xor: &[u8]) {
        let Some(mut load) = self.find(from).cloned() else { return };
        let Register::Word(word) = to else { return };
        load.word = word;
        load.masked = Some((mask.to_vec(), xor.to_vec()));
        self.loads.retain(|load| load.word != word);
        self.loads.push(load);
    }

    fn look_up(&mut self, set: &str, from: Register, to: Option<Register>, negated: bool) {
        let key = self.take(from, None);
        let not = if negated { "!= " } else { "" };
        match to {
            None => self.say(format!("{key} {not}@{set}")),
            Some(Register::Verdict) => self.say(format!("{key} vmap @{set}")),
            Some(to) => self.load(to, 16, format!("{key} map @{set}"), Kind::Bytes),
        }
    }

    fn set_meta(&mut self, key: u32, from: Register) {
        let (name, kind) = meta(key);
        let load = self.find(from).cloned();
        self.loads.clear();
        let value = match load {
            Some(Load { masked: Some((mask, xor)), text, .. }) if !mask.is_empty() => {
                format!("{text} {}", assignment(kind, &mask, &xor))
            }
            Some(Load { masked: Some((_, value)), .. }) => kind.text(&value),
            Some(load) => load.text,
            None => "?".to_owned(),
        };
        let meta = if name.starts_with("meta ") { "" } else { "meta " };
        self.say(format!("{meta}{name} set {value}"));
    }

    fn translate(&mut self, word: &str, address: Option<Register>, port: Option<Register>) {
        let family = match self.family {
            number if number == super::Family::Ip.number() => "ip ",
            number if number == super::Family::Ip6.number() => "ip6 ",
            _ => "",
        };
        let value = |register: Register, kind: Kind| match self.find(register) {
            Some(Load { masked: Some((mask, value)), .. }) if mask.is_empty() => kind.text(value),
            Some(load) => load.with_mask(),
            None => "?".to_owned(),
        };
        let address = address.map(|register| value(register, Kind::Address(0)));
        // A map returns address and port together.
        let port = port.filter(|port| self.find(*port).is_some());
        let port = port.map(|register| value(register, Kind::Port));
        self.loads.clear();
        let text = match (address, port) {
            (Some(address), None) => format!("{word} {family}to {address}"),
            (Some(address), Some(port)) => format!("{word} {family}to {address} port {port}"),
            (None, Some(port)) => format!("{word} to :{port}"),
            (None, None) => word.to_owned(),
        };
        self.say(text);
    }

    /// Returns the name of a field of the packet.
    fn field(&self, base: u32, offset: u32, length: u32) -> (String, Kind) {
        let is_ip6 = self.family == super::Family::Ip6.number();
        let is_ip = self.family == super::Family::Ip.number();
        let named = |text: &str, kind| (text.to_owned(), kind);
        match (base, offset, length) {
            (key::PAYLOAD_NETWORK, 12, 1..=4) if !is_ip6 => {
                named("ip saddr", Kind::Address(length))
            }
            (key::PAYLOAD_NETWORK, 16, 1..=4) if !is_ip6 => {
                named("ip daddr", Kind::Address(length))
            }
            (key::PAYLOAD_NETWORK, 8, 1..=16) if !is_ip => {
                named("ip6 saddr", Kind::Address(length))
            }
            (key::PAYLOAD_NETWORK, 24, 1..=16) if !is_ip => {
                named("ip6 daddr", Kind::Address(length))
            }
            (key::PAYLOAD_NETWORK, 9, 1) if !is_ip6 => named("ip protocol", Kind::Protocol),
            (key::PAYLOAD_TRANSPORT, 0, 2) => named("th sport", Kind::Port),
            (key::PAYLOAD_TRANSPORT, 2, 2) => named("th dport", Kind::Port),
            (base, offset, length) => {
                let base = match base {
                    key::PAYLOAD_NETWORK => "nh",
                    key::PAYLOAD_TRANSPORT => "th",
                    _ => "ll",
                };
                (format!("@{base},{},{}", offset * 8, length * 8), Kind::Bytes)
            }
        }
    }
}

impl Load {
    fn with_mask(&self) -> String {
        match &self.masked {
            Some((mask, xor)) if mask.is_empty() => self.kind.text(xor),
            Some((mask, _)) => format!("{} & {}", self.text, self.kind.text(mask)),
            None => self.text.clone(),
        }
    }

    fn comparison(&self, operator: &str, value: &[u8]) -> String {
        let text = &self.text;
        match (&self.masked, self.kind) {
            (None, Kind::Address(length)) if usize_of(length) < whole(text) => {
                format!("{text} {operator}{}/{}", address(value, whole(text)), length * 8)
            }
            (Some((mask, _)), Kind::Address(_)) => {
                let bits: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
                format!("{text} {operator}{}/{bits}", address(value, whole(text)))
            }
            (None, Kind::InterfaceName) if value.len() < key::INTERFACE_NAME => {
                format!("{text} {operator}\"{}*\"", String::from_utf8_lossy(value))
            }
            (Some((mask, _)), Kind::CtState | Kind::CtStatus) if is_zero(value) => {
                let not = if operator == "!= " { "" } else { "! " };
                format!("{text} {not}{}", self.kind.text(mask))
            }
            (Some(_), _) => {
                let operator = if operator.is_empty() { "== " } else { operator };
                format!("{} {operator}{}", self.with_mask(), self.kind.text(value))
            }
            (None, kind) => format!("{text} {operator}{}", kind.text(value)),
        }
    }
}

impl Kind {
    fn text(self, value: &[u8]) -> String {
        let number = <[u8; 4]>::try_from(value).map(u32::from_ne_bytes);
        match (self, number) {
            (Self::Address(_), _) => address(value, value.len()),
            (Self::Port, _) => match value {
                [high, low, ..] => u16::from_be_bytes([*high, *low]).to_string(),
                _ => bytes(value),
            },
            (Self::Protocol, _) => value.first().map_or_else(String::new, |it| protocol(*it)),
            (Self::Mark, Ok(number)) => format!("{number:#010x}"),
            (Self::Number, Ok(number)) => number.to_string(),
            (Self::LongNumber, _) => match <[u8; 8]>::try_from(value) {
                Ok(octets) => u64::from_be_bytes(octets).to_string(),
                Err(_) => bytes(value),
            },
            (Self::Class, Ok(number)) => {
                std::fmt::from_fn(|f| write_class_id(f, number)).to_string()
            }
            (Self::CtState, Ok(number)) => bits(number, CT_STATES),
            (Self::CtStatus, Ok(number)) => bits(number, CT_STATUSES),
            (Self::AddressType, Ok(number)) => {
                let name = ADDRESS_TYPES.iter().find(|(kind, _)| *kind == number);
                name.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
            }
            (Self::InterfaceName, _) => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                format!("\"{}\"", String::from_utf8_lossy(name))
            }
            (_, _) => bytes(value),
        }
    }
}

/// Returns the length in bytes of an address in the field of this name.
fn whole(field: &str) -> usize {
    if field.starts_with("ip6") { 16 } else { 4 }
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn words(length: u32) -> u8 {
    u8::try_from(length.div_ceil(4)).unwrap_or(u8::MAX)
}

/// Returns the text of an address whose last bytes may be missing.
fn address(value: &[u8], length: usize) -> String {
    let mut whole = value.to_vec();
    whole.resize(length, 0);
    match (<[u8; 4]>::try_from(&*whole), <[u8; 16]>::try_from(&*whole)) {
        (Ok(octets), _) => IpAddr::from(octets).to_string(),
        (_, Ok(octets)) => IpAddr::from(octets).to_string(),
        (Err(_), Err(_)) => bytes(value),
    }
}

/// Returns `| bits` or `^ bits`, or both steps if it is neither.
fn assignment(kind: Kind, mask: &[u8], xor: &[u8]) -> String {
    let is_or = mask.iter().zip(xor).all(|(mask, xor)| *mask == !xor);
    let is_flip = mask.iter().all(|mask| *mask == u8::MAX);
    match (is_or, is_flip) {
        (true, _) => format!("| {}", kind.text(xor)),
        (false, true) => format!("^ {}", kind.text(xor)),
        (false, false) if is_zero(xor) => format!("& {}", kind.text(mask)),
        (false, false) => format!("& {} ^ {}", kind.text(mask), kind.text(xor)),
    }
}

fn is_zero(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
}

fn bytes(value: &[u8]) -> String {
    let mut text = "0x".to_owned();
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn meta(number: u32) -> (String, Kind) {
    let (name, kind) = match number {
        key::META_PROTOCOL => ("meta protocol", Kind::Bytes),
        key::META_PRIORITY => ("meta priority", Kind::Class),
        key::META_MARK => ("meta mark", Kind::Mark),
        key::META_IIF => ("iif", Kind::Number),
        key::META_OIF => ("oif", Kind::Number),
        key::META_IIFNAME => ("iifname", Kind::InterfaceName),
        key::META_OIFNAME => ("oifname", Kind::InterfaceName),
        key::META_NFTRACE => ("meta nftrace", Kind::Bytes),
        key::META_NFPROTO => ("meta nfproto", Kind::Bytes),
        key::META_L4PROTO => ("meta l4proto", Kind::Protocol),
        number => return (format!("meta [{number}]"), Kind::Bytes),
    };
    (name.to_owned(), kind)
}

fn ct_name(number: u32) -> (String, Kind) {
    let (name, kind) = match number {
        key::CT_STATE => ("state", Kind::CtState),
        key::CT_DIRECTION => ("direction", Kind::Bytes),
        key::CT_STATUS => ("status", Kind::CtStatus),
        key::CT_MARK => ("mark", Kind::Mark),
        NFT_CT_PKTS => ("packets", Kind::LongNumber),
        NFT_CT_BYTES => ("bytes", Kind::LongNumber),
        number => return (format!("[{number}]"), Kind::Bytes),
    };
    (name.to_owned(), kind)
}

fn fib_flags(flags: u32) -> String {
    let names = [(1, "saddr"), (2, "daddr"), (4, "mark"), (8, "iif"), (16, "oif")];
    bits(flags, &names).replace(',', " . ")
}

fn reject(kind: u32, code: u8) -> String {
    match (kind, code) {
        (NFT_REJECT_ICMP_UNREACH, ICMP_PORT_UNREACH | ICMPV6_PORT_UNREACH) => "reject".to_owned(),
        (NFT_REJECT_ICMP_UNREACH, code) => format!("reject with icmp {code}"),
        (NFT_REJECT_TCP_RST, _) => "reject with tcp reset".to_owned(),
        (_, code) => format!("reject with icmpx {code}"),
    }
}

/// `enum nft_reject_types`.
const NFT_REJECT_TCP_RST: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Order, Verdict};

    const FIRST: Register = Register::Word(0);

    fn payload(base: u32, offset: u32, length: u32) -> Instruction {
        Instruction::Expr(Expr::Payload { base, offset, length, to: FIRST })
    }

    fn text(instructions: &[Instruction]) -> String {
        rule_text(key::NFPROTO_INET, instructions)
    }

    #[test]
    fn rules_of_others_are_close_to_a_listing() {
        let meta = |key| Instruction::Expr(Expr::Meta { key, to: FIRST });
        let equal = |value: &[u8]| {
            Instruction::Expr(Expr::Cmp { from: FIRST, negated: false, value: value.to_vec() })
        };
        let number =
            |value: &[u8]| Instruction::Expr(Expr::Immediate { value: value.to_vec(), to: FIRST });
        let udp = [meta(key::META_L4PROTO), equal(&[17])];
        let port = payload(key::PAYLOAD_TRANSPORT, 2, 2);
        let below =
            Instruction::Expr(Expr::Order { from: FIRST, order: Order::Less, value: vec![4, 0] });
        let drop = Instruction::Expr(Expr::Verdict(Verdict::Drop));
        let rule = [&udp[..], &[port.clone(), below, Instruction::Neutral("counter".into()), drop]];
        assert_eq!(text(&rule.concat()), "meta l4proto udp th dport < 1024 counter drop");

        let (first, last) = (vec![10, 0, 0, 1], vec![10, 0, 0, 9]);
        let range = Instruction::Range { from: FIRST, negated: true, first, last };
        assert_eq!(
            text(&[payload(key::PAYLOAD_NETWORK, 12, 4), range]),
            "ip saddr != 10.0.0.1-10.0.0.9"
        );
        let set = Instruction::Expr(Expr::MetaSet { key: key::META_MARK, from: FIRST });
        assert_eq!(text(&[number(&7u32.to_ne_bytes()), set]), "meta mark set 0x00000007");
        let vmap = Expr::Lookup {
            set: "verdicts".into(),
            from: FIRST,
            to: Some(Register::Verdict),
            negated: false,
        };
        assert_eq!(text(&[port, Instruction::Expr(vmap)]), "th dport vmap @verdicts");
        assert_eq!(text(&[Instruction::Unknown("synproxy".into())]), "[synproxy]");
        let redirect = Instruction::Redirect { port: Some(FIRST) };
        assert_eq!(text(&[number(&[0x1f, 0x90]), redirect]), "redirect to :8080");
    }
}
