//! The explanation as text.

use std::fmt::{self, Display, Formatter};

use engine::model::Protocol;
use engine::printable::Printable;

use super::direct_words::{hop_words, way_words};
use super::explanation::{ClosedNodePort, Explanation};
use super::percent::Percent;
use super::service::Service;
use super::sources::SourceRanges;
use super::step::{Fate, PossibleFate, RuleStep, Step};
use super::walk::Start;
use super::words::{lines, our_family, policy_words};

/// Most outcomes that are listed; an endpoint list may have thousands.
const MOST_OUTCOMES: usize = 20;

/// Writes a line. Names from other programs are escaped, so that they can neither forge a line nor
/// control the terminal.
pub(super) fn line(f: &mut Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{}", Printable(text))
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_packet(f)?;
        self.write_service(f)?;
        self.write_outcomes(f)?;
        for (i, note) in self.notes.iter().enumerate() {
            line(f, format_args!("{:9} {note}", if i == 0 { "assumed" } else { "" }))?;
        }
        self.write_steps(f)
    }
}

impl Explanation {
    /// Returns the name of the protocol.
    pub fn protocol(&self) -> String {
        let number = self.packet.protocol;
        let known = Protocol::ALL.into_iter().find(|it| it.number() == number);
        known.map_or_else(|| number.to_string(), |it| it.to_string())
    }

    /// Returns the reason of a drop because of the source.
    pub(super) fn why_dropped(&self, fate: &Fate) -> Option<String> {
        let ranges = self.source_ranges.as_ref().filter(|ranges| !ranges.is_allowed)?;
        let Fate::Dropped(place) = fate else { return None };
        let is_ours = our_family(&place.table).is_some() && ranges.ranges.is_some();
        let why = "the source is not in loadBalancerSourceRanges";
        is_ours.then(|| format!(": {why}"))
    }

    fn write_packet(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packet = &self.packet;
        let to = std::net::SocketAddr::new(packet.destination, packet.port);
        let start = match self.start {
            Start::Prerouting if !packet.input.is_known() => {
                "comes in by an interface that is not known".to_owned()
            }
            Start::Prerouting => format!("comes in by {}", packet.input.name),
            Start::Output => "sent by this node".to_owned(),
        };
        let (from, protocol) = (packet.source, self.protocol());
        line(f, format_args!("packet    {from} -> {to}/{protocol}, {start}"))
    }

    fn write_service(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let summary = self.summary();
        if let Some(ClosedNodePort { service, is_served_by_daemon }) = &self.closed_node_port {
            let found = found(service);
            let why = if *is_served_by_daemon {
                "which the daemon itself serves at [::1]"
            } else {
                "which is closed at this address (nodePortAddresses)"
            };
            return line(f, format_args!("{found}, {why}"));
        }
        let Some(service) = summary.service else {
            let why = if summary.is_cluster_ip {
                "none: the address is a ClusterIP, but no service has this port there"
            } else {
                "not ours: no service has this address and port"
            };
            return writeln!(f, "service   {why}");
        };
        let found = found(&service);
        match service.route {
            _ if self.is_handed_on() => line(f, format_args!("{found}"))?,
            Some(route) => {
                line(f, format_args!("{found}"))?;
                let policy = policy_words(route, service.is_balanced);
                line(f, format_args!("policy    {policy}"))?;
            }
            None => line(f, format_args!("{found}, without an endpoint for this packet"))?,
        }
        if let Some(direct) = &self.direct {
            line(f, format_args!("direct    {}", way_words(&direct.way)))?;
        }
        match &self.source_ranges {
            Some(ranges) => line(f, format_args!("sources   {}", sources(ranges))),
            None => Ok(()),
        }
    }

    fn write_outcomes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let outcomes = &self.prediction.outcomes;
        for (i, outcome) in outcomes.iter().take(MOST_OUTCOMES).enumerate() {
            let title = if i == 0 { "outcome" } else { "" };
            let why = self.why_dropped(&outcome.fate).unwrap_or_default();
            let fate = fate(&outcome.fate, &self.protocol()) + &why;
            line(f, format_args!("{title:9} {:>9}  {fate}", share(outcome)))?;
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
                    writeln!(f)?;
                    line(f, format_args!("{name}{}", of_all(*share)))?;
                }
                Step::Routed { what, share } => {
                    writeln!(f)?;
                    line(f, format_args!("routing: {what}{}", of_all(*share)))?;
                }
                Step::Chain { place: chain, kind, priority, drops } => {
                    let policy = if *drops { ", policy drop" } else { "" };
                    line(f, format_args!("  {chain} ({kind}, {priority}{policy})"))?;
                    place = Some(chain.clone());
                }
                Step::Rule(rule) => {
                    let lines = lines(rule, &self.protocol());
                    if rule.matched == 0.0 && lines.is_empty() {
                        continue;
                    }
                    if place.as_ref() != Some(&rule.place) {
                        line(f, format_args!("  chain {}", rule.place.chain))?;
                        place = Some(rule.place.clone());
                    }
                    write_rule(f, rule, &lines)?;
                }
            }
        }
        Ok(())
    }
}

fn found(service: &Service) -> String {
    let label = service.label.as_deref().unwrap_or("without a name in the tables");
    format!("service   {label} at {}", service.frontend)
}

/// Most ranges that are listed.
const MOST_RANGES: usize = 20;

fn sources(ranges: &SourceRanges) -> String {
    let Some(list) = &ranges.ranges else {
        return "only those in loadBalancerSourceRanges, which are too many to be listed"
            .to_owned();
    };
    let mut listed: Vec<_> = list.iter().take(MOST_RANGES).map(ToString::to_string).collect();
    if let Some(more) = list.len().checked_sub(MOST_RANGES).filter(|more| *more > 0) {
        listed.push(format!("{more} more"));
    }
    format!("only {} (loadBalancerSourceRanges)", listed.join(", "))
}

fn write_rule(f: &mut Formatter<'_>, rule: &RuleStep, lines: &[String]) -> fmt::Result {
    line(f, format_args!("    {}", rule.text))?;
    let matched = Percent(rule.matched / rule.reached.max(f64::MIN_POSITIVE));
    match (rule.is_certain, rule.matched == 0.0) {
        (false, _) => writeln!(f, "      may match")?,
        (true, true) => writeln!(f, "      does not match")?,
        (true, false) if !matched.is_all() => writeln!(f, "      matches {matched} of packets")?,
        (true, false) => {}
    }
    lines.iter().try_for_each(|text| line(f, format_args!("      {text}")))
}

fn of_all(share: f64) -> String {
    let share = Percent(share);
    if share.is_all() { String::new() } else { format!(", {share} of packets") }
}

fn share(outcome: &PossibleFate) -> String {
    let share = Percent(outcome.share);
    if outcome.is_certain {
        share.to_string()
    } else if share.is_all() {
        "perhaps".to_owned()
    } else {
        format!("at most {share}")
    }
}

/// Describes the fate of a packet.
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
        Fate::Handed(hop) => hop_words(hop),
        Fate::Refused(place) => format!("refused in {place}"),
        Fate::Dropped(place) => format!("dropped in {place}"),
        Fate::NoRoute(why) => format!("not delivered: {why}"),
        Fate::Unknown(place) => format!("not known: an expression in {place} decides"),
    }
}
