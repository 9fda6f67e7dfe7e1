//! `explain`: predicts the path of a packet by the rules in the kernel.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use engine::ruleset::Frontend;
use inspect::explain::{Explanation, Kernel, Question, Start, explain as explain_packet};
use inspect::show::Selector;
use inspect::tables::TableReader;
use nft::Family;
use serde_json::json;

use super::failure::Failure;
use super::live_trace;
use super::localhost_listeners;
use super::outcome::Found;
use super::output::{Output, print, warn};
use super::read_services::read_services;

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainFlags {
    /// Destination, such as 10.96.0.10:53/udp or [fd00::1]:53; without a protocol, each of tcp, udp
    /// and sctp with a service there, or tcp if there is none. The name of a service, such as
    /// default/web or default/web:http, means each of its addresses except node ports
    #[arg(value_name = "ADDRESS:PORT[/PROTOCOL]|SERVICE")]
    to: To,
    /// Source, such as 10.244.1.9 or [fd00::9]:40000 [default: this node]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    from: Option<Source>,
    /// Input interface [default: the interface with the route to the source]
    #[arg(long, value_name = "INTERFACE")]
    in_interface: Option<String>,
    /// First hook: prerouting for packets that arrive, output for packets of this node
    /// [default: prerouting if --from is not an address of this node]
    #[arg(long, value_name = "HOOK")]
    hook: Option<Start>,
    /// Format of the explanation
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Also let the kernel trace a real packet, and name the first difference. At hook output the
    /// packet is sent; at prerouting a packet must come in
    #[arg(long)]
    trace: bool,
    /// Seconds that --trace waits for the packet
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        requires = "trace",
        value_parser = clap::value_parser!(u8).range(1..=60)
    )]
    trace_time: u8,
}

/// The exit codes of `explain`, for `--help`.
pub const EXPLAIN_CODES: &str = "\
Exit codes:
  0  the packet is explained; with --trace, the kernel did as predicted
  1  with --trace, the kernel differed from the prediction
  2  an error: bad arguments, no permission, no table, or no packet to trace";

/// An address, a port and, if given, a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Destination {
    address: SocketAddr,
    protocol: Option<u8>,
}

/// Destination of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    /// One address.
    Address(Destination),
    /// The addresses of a service.
    Service(Selector),
}

/// An address, and optionally a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source(IpAddr, Option<u16>);

/// Explains a packet.
///
/// # Errors
/// The arguments are inconsistent, nftables cannot be read, no table exists, or no packet could be
/// traced.
pub fn explain(flags: &ExplainFlags) -> Result<Found, Failure> {
    let questions = flags.questions()?;
    let mut kernel = Kernel::open().map_err(Failure::new)?;
    let mut explanations = Vec::new();
    for question in &questions {
        explanations.extend(explain_packet(&mut kernel, question).map_err(Failure::new)?);
    }
    explanations.iter_mut().for_each(note_daemon);
    if !flags.trace {
        for (i, explanation) in explanations.iter().enumerate() {
            print_explanation(explanation, flags.output, i == 0);
        }
        return Ok(Found::Nothing);
    }
    let ([explanation], [question]) = (explanations.as_slice(), questions.as_slice()) else {
        let protocols: Vec<_> = explanations.iter().map(Explanation::protocol).collect();
        return Err(Failure::new(format!(
            "--trace: one packet is traced, but {} have a service there: give one of them, as {}/{}",
            protocols.join(" and "),
            questions.first().map_or_else(String::new, |question| question.to.to_string()),
            protocols.first().map_or("tcp", String::as_str),
        )));
    };
    let limit = Duration::from_secs(flags.trace_time.into());
    let comparison = live_trace::compare(explanation, question, limit)?;
    match flags.output {
        Output::Text => print(&format_args!("{explanation}\n{comparison}")),
        Output::Json => {
            let mut document = explanation.json();
            document["trace"] = live_trace::json(&comparison);
            print(&format_args!("{document}\n"));
        }
    }
    Ok(Found::if_any(comparison.difference().is_some()))
}

/// Notes whether the daemon serves a node port at `[::1]`, which the tables do not show.
fn note_daemon(explanation: &mut Explanation) {
    let packet = &explanation.packet;
    if let Some(closed) = &mut explanation.closed_node_port
        && packet.destination == IpAddr::V6(Ipv6Addr::LOCALHOST)
        && packet.protocol == 6
    {
        closed.is_served_by_daemon = localhost_listeners::ports().contains(&packet.port);
    }
}

/// Prints an explanation; an empty line is before each but the first, and JSON has one line each.
fn print_explanation(explanation: &Explanation, output: Output, is_first: bool) {
    match output {
        Output::Text if is_first => print(explanation),
        Output::Text => print(&format_args!("\n{explanation}")),
        Output::Json => print(&format_args!("{}\n", json!(explanation.json()))),
    }
}

/// Most addresses of a service that are explained.
const MOST: usize = 20;

impl ExplainFlags {
    /// Returns a question for each destination; for a service, those of the family of --from.
    fn questions(&self) -> Result<Vec<Question>, Failure> {
        let selector = match &self.to {
            To::Address(to) => return Ok(vec![self.question(*to)?]),
            To::Service(selector) => selector,
        };
        let mut all = addresses(selector)?;
        if let Some(Source(from, _)) = self.from {
            all.retain(|to| Family::of(to.address.ip()) == Family::of(from));
        }
        if all.is_empty() {
            return Err(Failure::new(format!(
                "the tables have no service {selector} with an address that can be explained"
            )));
        }
        if all.len() > MOST {
            warn(&format_args!("the first {MOST} of {} addresses are explained\n", all.len()));
            all.truncate(MOST);
        }
        all.into_iter().map(|to| self.question(to)).collect()
    }

    fn question(&self, to: Destination) -> Result<Question, Failure> {
        let Destination { address: to, protocol } = to;
        if let Some(Source(from, _)) = self.from
            && Family::of(from) != Family::of(to.ip())
        {
            let (from_name, to_name) = (Family::of(from).name(), Family::of(to.ip()).name());
            return Err(Failure::new(format!(
                "--from {from}: an {to_name} address is needed, like that of {to}; this is \
                 {from_name}"
            )));
        }
        if let (Some(Start::Output), Some(name)) = (self.hook, &self.in_interface) {
            return Err(Failure::new(format!(
                "--in-interface {name}: only a packet at --hook prerouting comes in by an \
                 interface; this is --hook output"
            )));
        }
        Ok(Question {
            to,
            protocol,
            from: self.from.map(|Source(address, port)| (address, port)),
            interface: self.in_interface.clone(),
            start: self.hook,
        })
    }
}

/// Returns the addresses of a service in the tables, without node ports.
fn addresses(selector: &Selector) -> Result<Vec<Destination>, Failure> {
    let mut reader = TableReader::open().map_err(Failure::new)?;
    let (services, _) = read_services(&mut reader, selector)?;
    let entries = selector.select(&services).into_iter().map(|place| &services.entries()[place]);
    let addresses = entries.filter_map(|entry| match entry.frontend {
        Frontend::Address { address, protocol, port } => Some(Destination {
            address: SocketAddr::new(address, port.get()),
            protocol: Some(protocol.number()),
        }),
        Frontend::Ranges { address, protocol } => Some(Destination {
            address: SocketAddr::new(address, entry.blocks.first()?.first().max(1)),
            protocol: Some(protocol.number()),
        }),
        Frontend::NodePort { .. } => None,
    });
    Ok(addresses.collect())
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), text.parse()) {
            (_, Ok(selector @ Selector::Service { .. })) => Ok(Self::Service(selector)),
            (destination, _) => destination.map(Self::Address),
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "ADDRESS:PORT[/PROTOCOL] is expected, as 10.96.0.10:53/udp or [fd00::1]:53";
        let (address, protocol) = match text.rsplit_once('/') {
            Some((address, protocol)) => (address, Some(protocol)),
            None => (text, None),
        };
        let protocol = match protocol.map(str::to_ascii_lowercase).as_deref() {
            None => None,
            Some("tcp") => Some(6),
            Some("udp") => Some(17),
            Some("sctp") => Some(132),
            Some(other) => return Err(format!("\"{other}\" is not tcp, udp or sctp; {EXPECTED}")),
        };
        if is_address(address) {
            return Err(format!("the port is missing; {EXPECTED}"));
        }
        match address.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(format!("port 0 is none; {EXPECTED}")),
            Ok(address) => Ok(Self { address, protocol }),
            Err(_) => Err(format!("\"{address}\" is not an address and port; {EXPECTED}")),
        }
    }
}

/// Returns whether the text is an address without a port.
fn is_address(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    bare.unwrap_or(text).parse::<IpAddr>().is_ok()
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse() {
            return Ok(Self(address, None));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self(address.ip(), Some(address.port()))),
            Err(_) => Err("ADDRESS or ADDRESS:PORT is expected, as 10.244.1.9, 10.244.1.9:40000 \
                           or [fd00::9]:40000"
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_has_address_port_and_protocol() {
        let parse = |text: &str| text.parse::<Destination>();
        let address = "10.96.0.10:53".parse().unwrap();
        assert_eq!(parse("10.96.0.10:53/udp"), Ok(Destination { address, protocol: Some(17) }));
        assert_eq!(parse("10.96.0.10:53"), Ok(Destination { address, protocol: None }));
        let address = "[fd00::1]:53".parse().unwrap();
        assert_eq!(parse("[fd00::1]:53/TCP"), Ok(Destination { address, protocol: Some(6) }));
        for (text, why) in [
            ("10.96.0.10", "the port is missing"),
            ("10.96.0.10/udp", "the port is missing"),
            ("[fd00::1]/udp", "the port is missing"),
            ("10.96.0.10:0/udp", "port 0 is none"),
            ("10.96.0.10:53/icmp", "\"icmp\" is not tcp, udp or sctp"),
            ("10.96.0.300:53/udp", "\"10.96.0.300:53\" is not an address and port"),
            ("fd00::1:53/udp", "the port is missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
            assert!(error.contains("10.96.0.10:53/udp"), "{error}");
        }
    }

    #[test]
    fn a_name_is_a_service_and_all_else_a_destination() {
        let parse = |text: &str| text.parse::<To>();
        for text in ["default/web", "kube-system/kube-dns:dns-tcp"] {
            assert_eq!(parse(text), Ok(To::Service(text.parse().unwrap())), "{text}");
        }
        let address = "10.96.0.10:53".parse().unwrap();
        let destination = Destination { address, protocol: Some(17) };
        assert_eq!(parse("10.96.0.10:53/udp"), Ok(To::Address(destination)));
        for (text, why) in [("10.96.0.10/udp", "the port is missing"), ("web", "\"web\" is not")] {
            assert!(parse(text).unwrap_err().starts_with(why), "{text}");
        }
    }

    #[test]
    fn a_source_may_lack_its_port() {
        let parse = |text: &str| text.parse::<Source>().map(|Source(ip, port)| (ip, port));
        assert_eq!(parse("10.0.0.1"), Ok(([10, 0, 0, 1].into(), None)));
        assert_eq!(parse("10.0.0.1:99"), Ok(([10, 0, 0, 1].into(), Some(99))));
        assert_eq!(parse("fd00::1").unwrap().1, None);
        assert_eq!(parse("[fd00::1]").unwrap().1, None);
        assert_eq!(parse("[fd00::1]:99").unwrap().1, Some(99));
        assert!(parse("pod").unwrap_err().contains("10.244.1.9"));
    }
}
