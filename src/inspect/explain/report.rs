//! The explanation for people.

use std::fmt::{self, Display, Formatter};

use super::percent::Percent;
use super::step::{Fate, Outcome, Place, RuleStep, Step};
use super::words::{lines, route_words};
use super::{Explanation, Start};

/// Outcomes that are listed one by one; an endpoint list may have thousands.
const MOST_OUTCOMES: usize = 20;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_packet(f)?;
        self.write_service(f)?;
        self.write_outcomes(f)?;
        for (i, note) in self.notes.iter().enumerate() {
            writeln!(f, "{:9} {note}", if i == 0 { "assumed" } else { "" })?;
        }
        self.write_steps(f)
    }
}

impl Explanation {
    /// The protocol by name.
    pub fn protocol(&self) -> String {
        protocol_name(self.packet.protocol)
    }

    fn write_packet(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packet = &self.packet;
        let to = std::net::SocketAddr::new(packet.destination, packet.port);
        write!(f, "packet    {} -> {to}/{}", packet.source, self.protocol())?;
        match self.start {
            Start::Prerouting => writeln!(f, ", comes in by {}", packet.input.name),
            Start::Output => writeln!(f, ", sent by this node"),
        }
    }

    fn write_service(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let summary = self.summary();
        let Some(service) = summary.service else {
            return writeln!(
                f,
                "service   {}",
                match summary.is_cluster_ip {
                    true => "none: the address is a ClusterIP, but no service has this port there",
                    false => "not ours: no service has this address and port",
                }
            );
        };
        let label = service.label.as_deref().unwrap_or("without a name in the tables");
        write!(f, "service   {label} at {}", service.frontend)?;
        match service.route {
            Some(route) => writeln!(f, "\npolicy    {}", route_words(route)),
            None => writeln!(f, ", without an endpoint for this packet"),
        }
    }

    fn write_outcomes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let outcomes = &self.prediction.outcomes;
        for (i, outcome) in outcomes.iter().take(MOST_OUTCOMES).enumerate() {
            write!(f, "{:9} ", if i == 0 { "outcome" } else { "" })?;
            writeln!(f, "{:>9}  {}", share(outcome), fate(&outcome.fate, &self.protocol()))?;
        }
        if let Some(rest) = outcomes.get(MOST_OUTCOMES..).filter(|rest| !rest.is_empty()) {
            let part = Percent(rest.iter().map(|outcome| outcome.share).sum());
            writeln!(f, "{:9} {:>9}  {} more outcomes", "", part.to_string(), rest.len())?;
        }
        Ok(())
    }

    fn write_steps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut place = None;
        for step in &self.prediction.steps {
            match step {
                Step::Hook { name, share } => {
                    writeln!(f, "\n{name}{}", of_all(*share))?;
                }
                Step::Routed { what, share } => writeln!(f, "\nrouting: {what}{}", of_all(*share))?,
                Step::Chain { place: chain, kind, priority, drops } => {
                    let policy = if *drops { ", policy drop" } else { "" };
                    let Place { table, chain: name } = chain;
                    writeln!(f, "  table {table} chain {name} ({kind}, {priority}{policy})")?;
                    place = Some(chain.clone());
                }
                Step::Rule(rule) => {
                    let lines = lines(rule, &self.protocol());
                    if rule.matched == 0.0 && lines.is_empty() {
                        continue;
                    }
                    if place.as_ref() != Some(&rule.place) {
                        writeln!(f, "  chain {}", rule.place.chain)?;
                        place = Some(rule.place.clone());
                    }
                    write_rule(f, rule, &lines)?;
                }
            }
        }
        Ok(())
    }
}

fn write_rule(f: &mut Formatter<'_>, rule: &RuleStep, lines: &[String]) -> fmt::Result {
    writeln!(f, "    {}", rule.text)?;
    let matched = Percent(rule.matched / rule.reached.max(f64::MIN_POSITIVE));
    match (rule.is_certain, rule.matched == 0.0) {
        (false, _) => writeln!(f, "      may match")?,
        (true, true) => writeln!(f, "      does not match")?,
        (true, false) if !matched.is_all() => writeln!(f, "      matches {matched} of packets")?,
        (true, false) => {}
    }
    lines.iter().try_for_each(|line| writeln!(f, "      {line}"))
}

fn of_all(share: f64) -> String {
    let share = Percent(share);
    if share.is_all() { String::new() } else { format!(", {share} of packets") }
}

fn share(outcome: &Outcome) -> String {
    match outcome.is_certain {
        true => Percent(outcome.share).to_string(),
        false if Percent(outcome.share).is_all() => "perhaps".to_owned(),
        false => format!("at most {}", Percent(outcome.share)),
    }
}

/// What becomes of a packet, in words.
pub(super) fn fate(fate: &Fate, protocol: &str) -> String {
    match fate {
        Fate::Sent { to, translated, masqueraded, interface } => {
            let what = if *translated { "endpoint" } else { "goes on unchanged to" };
            let source = match (translated, masqueraded) {
                (_, true) => ", masqueraded: the source becomes the node's address",
                (true, false) => ", keeps its source",
                (false, false) => "",
            };
            let by = match interface {
                Some(interface) => format!(" by {interface}"),
                None => " on this node".to_owned(),
            };
            format!("{what} {to}/{protocol}{by}{source}")
        }
        Fate::Refused(place) => format!("refused in {}", at(place)),
        Fate::Dropped(place) => format!("dropped in {}", at(place)),
        Fate::NoRoute(why) => format!("not delivered: {why}"),
        Fate::Unknown(place) => format!("not known: an expression in {} decides", at(place)),
    }
}

fn at(place: &Place) -> String {
    format!("table {} chain {}", place.table, place.chain)
}

/// The name of a transport protocol.
pub(super) fn protocol_name(number: u8) -> String {
    match number {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        132 => "sctp".to_owned(),
        number => number.to_string(),
    }
}
