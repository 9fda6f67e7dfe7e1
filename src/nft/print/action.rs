//! What each expression does, and the statements that are neither matches nor translations.

use std::time::Duration;

use super::kind::Kind;
use super::load::{self, Bitrange, Load, Term};
use super::names::{ICMP_CODES, ICMPV6_CODES, ICMPX_CODES, LOG_LEVELS, Words, word};
use super::printer::Printer;
use super::side::{Side, joined, run_of_ones};
use crate::expression::Expression;
use crate::expression::{
    Connlimit, Dynset, Last, Limit, Log, Objref, Queue, Quota, Reg, Reject, Synproxy,
};
use crate::object::noun;
use crate::text::Time;

impl Printer<'_, '_> {
    /// Runs an expression: it changes registers, or is a statement.
    pub(super) fn add(&mut self, expression: &Expression) {
        let text = match expression {
            Expression::Payload(payload) => return self.payload(payload),
            Expression::Exthdr(exthdr) => return self.exthdr(exthdr),
            Expression::Bitwise(bitwise) => return self.bitwise(bitwise),
            Expression::Byteorder(byteorder) => return self.byteorder(byteorder),
            Expression::Immediate(immediate) => return self.immediate(immediate),
            Expression::Hash(hash) => return self.hash(hash),
            Expression::Cmp(cmp) => return self.compare(cmp),
            Expression::Range(range) => return self.range(range),
            Expression::Lookup(lookup) => return self.look_up(lookup),
            Expression::Rt(rt) => return self.load(rt.to, load::rt(rt), "rt"),
            Expression::Socket(it) => return self.load(it.to, load::socket(it), "socket"),
            Expression::Fib(fib) => return self.load(fib.to, load::fib(fib), "fib"),
            Expression::Numgen(numgen) => return self.write(numgen.to, load::numgen(numgen)),
            Expression::Osf(osf) => return self.write(osf.to, load::osf(osf)),
            Expression::Xfrm(xfrm) => return self.load(xfrm.to, load::xfrm(xfrm), "xfrm"),
            Expression::Tunnel(tunnel) => return self.load(tunnel.to, None, "tunnel"),
            Expression::Meta(meta) => {
                return self.move_key((meta.to, meta.from), load::meta(meta), "meta");
            }
            Expression::Ct(ct) => {
                return self.move_key((ct.to, ct.from), load::ct(ct, self.context.family), "ct");
            }
            Expression::CounterExpression(counter) => {
                format!("counter packets {} bytes {}", counter.packets, counter.bytes)
            }
            Expression::Limit(limit) => limit_text(limit),
            Expression::Quota(quota) => quota_text(quota),
            Expression::Log(log) => log_text(log),
            Expression::Reject(reject) => self.reject(reject),
            Expression::Nat(nat) => self.nat(nat),
            Expression::Masq(masq) => {
                self.port_translation("masquerade", (masq.port, masq.last_port), masq.flags)
            }
            Expression::Redir(redir) => {
                self.port_translation("redirect", (redir.port, redir.last_port), redir.flags)
            }
            Expression::Tproxy(tproxy) => self.tproxy(tproxy),
            Expression::Dynset(dynset) => self.dynset(dynset),
            Expression::Queue(queue) => self.queue(queue),
            Expression::Dup(dup) => self.dup(dup),
            Expression::Fwd(fwd) => self.fwd(fwd),
            Expression::Synproxy(synproxy) => synproxy_text(synproxy),
            Expression::Objref(objref) => self.objref(objref),
            Expression::Connlimit(limit) => connection_limit_text(limit),
            Expression::Notrack => "notrack".to_owned(),
            Expression::Last(last) => last_text(last),
            Expression::FlowOffload(flow) => format!("flow add @{}", flow.flowtable),
            Expression::Match(found) => format!("xt match \"{}\"", found.match_name),
            Expression::Target(found) => format!("xt target \"{}\"", found.target_name),
            Expression::Inner(_) | Expression::Unknown(_) => format!("[{}]", expression.name()),
        };
        self.say(text);
    }

    /// Loads metadata, or sets it.
    fn move_key(&mut self, (to, from): (Option<Reg>, Option<Reg>), key: Option<Load>, name: &str) {
        match to {
            Some(to) => self.load(to, key, name),
            None => self.set(key, from, name),
        }
    }

    /// Sets metadata to the contents of a register.
    pub(super) fn set(&mut self, key: Option<Load>, from: Option<Reg>, name: &str) {
        let Some((key, from)) = key.zip(from) else { return self.say(format!("[{name}]")) };
        let side = self.side(&key);
        let value = self.assigned(&side, from);
        self.say(format!("{} set {value}", side.text));
    }

    /// Returns the contents of a register as a value of a field.
    pub(super) fn assigned(&mut self, side: &Side, from: Reg) -> String {
        match self.read(from, 0) {
            Some(Load { term: Term::Value(value), .. }) => {
                let is_short = side.kind == Kind::Ipv4 && value.len() < 4;
                if is_short { super::kind::hexadecimal(&value) } else { self.value(side, &value) }
            }
            Some(load) => joined(&self.sides(&load)),
            None => "[register]".to_owned(),
        }
    }

    /// Writes a field. nft(8) writes at least two bytes, of which a mask keeps the others.
    pub(super) fn set_payload(&mut self, range: Bitrange, load: &Load, from: Reg) {
        let written = self.read(from, 0);
        if let Some(Load { term: Term::Masked { mask, xor, .. }, .. }) = &written {
            let changed: Vec<_> = mask.iter().map(|byte| !byte).collect();
            let found = run_of_ones(&changed).and_then(|(start, length)| {
                let inner =
                    Bitrange { offset: range.offset.saturating_add(start), length, ..range };
                Some((start, length, self.exact_field(inner)?))
            });
            if let Some((start, length, (header, field))) = found {
                let side = self.field_side(range.space, header, field, load);
                let value = super::side::extract(xor, start, length);
                let text = side.kind.text(&value, self.interfaces);
                return self.say(format!("{} set {text}", side.text));
            }
        }
        let side = self.side(load);
        let value = self.assigned(&side, from);
        self.say(format!("{} set {value}", side.text));
    }

    fn reject(&mut self, reject: &Reject) -> String {
        let code = u64::from(reject.code.unwrap_or_default());
        let is_ip6 = self.protocols.network.is_some_and(|header| header.name == "ip6");
        let is_inet = self.context.family.of_addresses().is_none();
        let (words, default): (Words, _) = match (reject.kind, is_ip6) {
            (1, _) => {
                if let Some(statement) = self.protocols.take_reset_match() {
                    self.remove(statement);
                }
                return "reject with tcp reset".to_owned();
            }
            (2, _) => (ICMPX_CODES, Some(1)),
            (_, false) => (ICMP_CODES, (!is_inet).then_some(3)),
            (_, true) => (ICMPV6_CODES, (!is_inet).then_some(4)),
        };
        if reject.kind == 0
            && is_inet
            && let Some(statement) = self.protocols.take_network_match()
        {
            self.remove(statement);
        }
        if default == Some(code) {
            return "reject".to_owned();
        }
        let protocol = match (reject.kind, is_ip6) {
            (2, _) => "icmpx",
            (_, false) => "icmp",
            (_, true) => "icmpv6",
        };
        let code = word(words, code).map_or_else(|| code.to_string(), str::to_owned);
        format!("reject with {protocol} {code}")
    }

    fn dynset(&mut self, dynset: &Dynset) -> String {
        let set = self.context.set(&dynset.set);
        let key = match self.read_key(dynset.key, &dynset.set, dynset.data) {
            Some(load) => joined(&self.sides(&load)),
            None => "[register]".to_owned(),
        };
        let operation = match dynset.operation {
            0 => "add",
            1 => "update",
            _ => "delete",
        };
        let mut text = format!("{operation} @{} {{ {key}", dynset.set);
        if let Some(timeout) = dynset.timeout.filter(|timeout| *timeout != 0) {
            let timeout = Time(Duration::from_millis(timeout));
            text = format!("{text} timeout {timeout}");
        }
        let one = dynset.expression.as_deref().into_iter();
        for expression in one.chain(dynset.expressions.iter().flatten()) {
            // An element has no numbers of its own here.
            if let Expression::CounterExpression(_) = expression {
                text.push_str(" counter");
                continue;
            }
            let before = self.statements.len();
            self.add(expression);
            for statement in self.statements.split_off(before).into_iter().flatten() {
                text = format!("{text} {statement}");
            }
        }
        if let Some(data) = dynset.data {
            let kinds = set.map(|contents| super::types::kinds(contents.set.data_type));
            let (kind, host, _) =
                kinds.and_then(|kinds| kinds.first().copied()).unwrap_or((Kind::Hex(1), false, 0));
            let data = self.register(data, kind, host);
            text = format!("{text} : {data}");
        }
        format!("{text} }}")
    }

    /// Returns the contents of a register, a constant in this form.
    pub(super) fn register(&mut self, from: Reg, kind: Kind, host: bool) -> String {
        let side = Side { kind, host, ..self.side(&Load::key("", kind, host, 0)) };
        self.assigned(&side, from)
    }

    fn queue(&mut self, queue: &Queue) -> String {
        let mut flags = Vec::new();
        if queue.flags & 1 != 0 {
            flags.push("bypass");
        }
        if queue.flags & 2 != 0 {
            flags.push("fanout");
        }
        let flags =
            if flags.is_empty() { String::new() } else { format!(" flags {}", flags.join(",")) };
        let to = match (queue.from, queue.number.unwrap_or_default(), queue.total) {
            (Some(from), ..) => self.register(from, Kind::Number, true),
            (None, first, Some(total @ 2..)) => {
                format!("{first}-{}", u32::from(first) + u32::from(total) - 1)
            }
            (None, first, _) => first.to_string(),
        };
        format!("queue{flags} to {to}")
    }

    fn objref(&mut self, objref: &Objref) -> String {
        let words = |kind: u32| match (kind, noun(kind)) {
            (1 | 2 | 4 | 10, noun) => format!("{noun} name"),
            (3 | 7 | 9, noun) => format!("{noun} set"),
            (8, noun) => format!("meta {noun} set"),
            (_, _) => "[object]".to_owned(),
        };
        if let (Some(kind), Some(object)) = (objref.kind, &objref.object) {
            return format!("{} \"{object}\"", words(kind));
        }
        let (Some(key), Some(map)) = (objref.key, &objref.map) else {
            return "[objref]".to_owned();
        };
        let contents = self.context.set(map);
        let kind = contents.map_or(0, |contents| contents.set.object_type);
        let Some(load) = self.read_key(key, map, None) else { return "[objref]".to_owned() };
        let sides = self.sides(&load);
        let set = self.set_text(map, &sides);
        format!("{} {} map {set}", words(kind), joined(&sides))
    }
}

/// A number of bytes in the largest unit that it is a multiple of.
fn size(bytes: u64) -> (u64, &'static str) {
    const KILO: u64 = 1 << 10;
    match bytes {
        0 => (0, "bytes"),
        _ if bytes.is_multiple_of(KILO * KILO) => (bytes / KILO / KILO, "mbytes"),
        _ if bytes.is_multiple_of(KILO) => (bytes / KILO, "kbytes"),
        _ => (bytes, "bytes"),
    }
}

fn limit_text(limit: &Limit) -> String {
    const UNITS: Words =
        &[(1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day"), (604_800, "week")];
    /// The burst of nft(8) if none is given.
    const DEFAULT_BURST: u32 = 5;
    let over = if limit.flags & 1 == 0 { "" } else { "over " };
    let unit = word(UNITS, limit.unit).unwrap_or("[unit]");
    if limit.kind == 0 {
        let burst = match limit.burst {
            0 | DEFAULT_BURST => String::new(),
            burst => format!(" burst {burst} packets"),
        };
        return format!("limit rate {over}{}/{unit}{burst}", limit.rate);
    }
    let (rate, rate_unit) = size(limit.rate);
    let burst = match size(u64::from(limit.burst)) {
        (0, _) => String::new(),
        (burst, unit) => format!(" burst {burst} {unit}"),
    };
    format!("limit rate {over}{rate} {rate_unit}/{unit}{burst}")
}

fn connection_limit_text(limit: &Connlimit) -> String {
    let over = if limit.flags.unwrap_or_default() & 1 == 0 { "" } else { "over " };
    format!("ct count {over}{}", limit.count)
}

fn last_text(last: &Last) -> String {
    match last.is_set {
        0 => "last used never".to_owned(),
        _ => format!("last used {}", Time(Duration::from_millis(last.milliseconds))),
    }
}

fn quota_text(quota: &Quota) -> String {
    let over = if quota.flags & 1 == 0 { "" } else { "over " };
    let (bytes, unit) = size(quota.bytes);
    let used = match size(quota.consumed) {
        (0, _) => String::new(),
        (used, unit) => format!(" used {used} {unit}"),
    };
    format!("quota {over}{bytes} {unit}{used}")
}

fn log_text(log: &Log) -> String {
    const DEFAULT_LEVEL: u32 = 4;
    const ALL: u32 = 0x2f;
    let mut text = "log".to_owned();
    if let Some(prefix) = &log.prefix {
        text = format!("{text} prefix \"{prefix}\"");
    }
    if let Some(group) = log.group {
        text = format!("{text} group {group}");
        if let Some(length) = log.snaplen.filter(|length| *length != 0) {
            text = format!("{text} snaplen {length}");
        }
        if let Some(packets) = log.queue_threshold.filter(|packets| *packets != 0) {
            text = format!("{text} queue-threshold {packets}");
        }
        return text;
    }
    if let Some(level) = log.level.filter(|level| *level != DEFAULT_LEVEL) {
        let name = word(LOG_LEVELS, u64::from(level)).unwrap_or("[level]");
        text = format!("{text} level {name}");
    }
    let flags = log.flags.unwrap_or_default();
    if flags & ALL == ALL {
        return format!("{text} flags all");
    }
    let sequence = match flags & 3 {
        1 => " flags tcp sequence",
        2 => " flags tcp options",
        3 => " flags tcp sequence,options",
        _ => "",
    };
    text.push_str(sequence);
    for (bit, word) in [(4, " flags ip options"), (8, " flags skuid"), (0x20, " flags ether")] {
        if flags & bit != 0 {
            text.push_str(word);
        }
    }
    text
}

fn synproxy_text(synproxy: &Synproxy) -> String {
    let mut text = "synproxy".to_owned();
    if synproxy.flags & 1 != 0 {
        text = format!("{text} mss {}", synproxy.mss);
    }
    if synproxy.flags & 2 != 0 {
        text = format!("{text} wscale {}", synproxy.window_scale);
    }
    if synproxy.flags & 8 != 0 {
        text.push_str(" timestamp");
    }
    if synproxy.flags & 4 != 0 {
        text.push_str(" sack-perm");
    }
    text
}
