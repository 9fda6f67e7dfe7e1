//! `show`: prints the services in the kernel, once or repeatedly.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use conntrack::ReopenedTable;
use daemon::config::duration;
use inspect::show::format::{self, DocumentFormat};
use inspect::show::{
    ClientConnections, Clients, Connections, Endpoints, Filter, OfEndpoints, Selector, Services,
    View, ended_document, ended_endpoints, refresh_refused, write_ended,
};
use inspect::tables::{OurTable, TableReader};
use nft::kernel::Generation;

use super::clock::since_1970;
use super::cut_output::CutOutput;
use super::failure::Failure;
use super::localhost_listeners;
use super::node_endpoints::OfNodeFlags;
use super::outcome::Found;
use super::output::warn_of;
use super::read_services::read_services;
use super::run::stop_signal;

/// Exit codes and examples of `show`, for `--help`.
pub const SHOW_HELP: &str = "\
Columns:
  ADDRESS    of a node port, the address of this node that serves it; with +2, two more do, and * is
             every address
  POLICY     internal traffic policy of a cluster IP, external one of other addresses; - where the
             tables are the same with both
  SCHEDULER  random, wrr (random with weights), lc (weights follow connections), mh or mh-port (a
             hash of the source), or affinity with its timeout in seconds; refuse (packets are
             rejected) or drop if there is no endpoint for connections from outside. rr is random: even over
             time, not in turn. direct: nodes hand connections from outside to each other (direct
             return), and the scheduler chooses among the endpoints of the node that serves them
  ENDPOINTS  those that get new connections; LOCAL are on this node
  DRAINING   former endpoints with live connections
  ACTIVE     answered connections that at most one side has closed
  NEW        connections without an answer yet
  ENDED      closed connections that conntrack still keeps
  BEGAN      connections since the last reading (--watch, --sample)
  CLIENTS    clients with a stored endpoint of session affinity; those with the same hash count
             once
  COUNTED    connections that the kernel has counted (option counters) since the element was added;
             BYTES are those of their first packets; of an endpoint, through all addresses of the
             port that lead to it
  REFUSED    packets to the address that were rejected or dropped since it has no endpoint (no
             endpoint on this node), or since it has source ranges

With --refused, a line for each reason, of all services and of none:
  no_endpoint          rejected: the service has no ready endpoint
  no_local_endpoint    dropped: with policy Local, all endpoints are on other nodes
  source_range         dropped: the source is not in loadBalancerSourceRanges
  unknown_port         rejected: the service of the cluster IP lacks the port
  unallocated_address  dropped: no service has the address of a ServiceCIDR
  loopback             dropped: another host sent to 127.0.0.0/8
  ended_endpoint       answered with RST: the endpoint is in no EndpointSlice any more
and a line for each address that refused packets for the first three reasons, the most first.

Exit codes:
  0  done; with --draining: no endpoint is draining
  1  with --draining: some are
  2  an error: no permission, no tables, no such service

With --ended (option endedConnections), a line for each endpoint that is gone:
  RESETS     packets of its connections that were answered with RST
  LEFT       time after which the kernel forgets it

With --connections, a line for each connection:
  CLIENT     address and port that began it
  STATE      new, active or ended
  AGE        with sysctl net.netfilter.nf_conntrack_timestamp
  BYTES      of both directions, with sysctl net.netfilter.nf_conntrack_acct

Examples:
  deltaproxy show
  deltaproxy show default/web --watch
  deltaproxy show 10.96.0.10:53/udp --sample 5s
  deltaproxy show --endpoint 10.244.1.5 --endpoint 10.244.7.0/24
  deltaproxy show --node n7
  deltaproxy show --namespace default --search web
  deltaproxy show --connections --draining default/web
  deltaproxy show --output ipvsadm
  deltaproxy show --refused
  until deltaproxy show --draining default/web; do sleep 1; done";

/// The flags of `deltaproxy show`.
#[derive(Debug, Clone, Args)]
pub struct ShowFlags {
    /// Service to show with its endpoints: NAMESPACE/NAME, NAMESPACE/NAME:PORT-NAME, ADDRESS or
    /// ADDRESS:PORT[/PROTOCOL]; without it, a line for each address of each service
    #[arg(value_name = "SERVICE")]
    pub service: Option<Selector>,
    /// Show only services of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Show only services whose name or address contains this text, or that use the endpoint that it
    /// names
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Show only services that use this endpoint, or one of a range, such as the pods of a node; may
    /// be given several times
    #[arg(long, value_name = "ADDRESS[:PORT]|RANGE")]
    pub endpoint: Vec<Endpoints>,
    #[command(flatten)]
    of_node: OfNodeFlags,
    /// List the connections one by one, with their clients: the first 1,000
    #[arg(long, conflicts_with_all = ["sample", "watch"])]
    pub connections: bool,
    /// Show former endpoints with live connections; with --watch, until there are none
    #[arg(long)]
    pub draining: bool,
    #[command(flatten)]
    packets: PacketFlags,
    /// Repeat until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Time between two reads with --watch
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Read twice with this time between, and show the connections that began meanwhile
    #[arg(long, value_name = "DURATION", conflicts_with = "watch", value_parser = interval)]
    pub sample: Option<Duration>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: ShowOutput,
}

/// Lists of packets that got no endpoint.
#[derive(Debug, Clone, Copy, Args)]
struct PacketFlags {
    /// List the packets that were rejected or dropped: their number by reason, unless services are
    /// selected, and the addresses with the most of them
    #[arg(long, conflicts_with_all = ["connections", "draining", "sample"])]
    refused: bool,
    /// List the endpoints that are in no EndpointSlice any more and whose connections end
    #[arg(long, conflicts_with_all = ["service", "endpoint", "connections", "draining", "refused", "sample", "watch"])]
    ended: bool,
}

/// Output format of services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowOutput {
    /// For people
    #[default]
    Text,
    /// The same with more columns
    Wide,
    /// One JSON document, or one for each read
    Json,
    /// One YAML document, or one for each read
    Yaml,
    /// The layout of `ipvsadm -Ln`
    Ipvsadm,
}

/// Shortest time between two reads: one takes a fraction of a second with 50,000 services.
const SHORTEST: Duration = Duration::from_millis(100);

/// Parses the time between two reads.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text).map_err(|error| error.to_string())?;
    if interval < SHORTEST {
        return Err(format!("{text:?} is shorter than {}", duration::text(SHORTEST)));
    }
    Ok(interval)
}

/// Prints services, or draining endpoints.
///
/// # Errors
/// Missing permission, missing tables, unknown service, or a failed read.
pub fn show(flags: &ShowFlags) -> Result<Found, Failure> {
    if flags.packets.ended {
        return show_ended(flags);
    }
    let mut reading = Reading::open(flags)?;
    if !flags.watch {
        if let Some(time) = flags.sample {
            reading.read()?;
            std::thread::sleep(time);
        }
        reading.read()?;
        reading.notes().iter().for_each(|note| warn_of(note));
        let stdout = io::stdout().lock();
        let mut out = BufWriter::with_capacity(BUFFER, stdout);
        let written = reading.write(&mut out).and_then(|()| out.flush());
        // Dropping the writer would write its buffer again, although the reader may be gone.
        let _ = out.into_parts();
        return ended(written).map(|_| reading.end());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::new)?.block_on(watch(&mut reading))
}

/// Prints the ended endpoints of services of a namespace, or whose name has the text.
fn show_ended(flags: &ShowFlags) -> Result<Found, Failure> {
    let mut reader = TableReader::open().map_err(Failure::new)?;
    let (namespace, part) = (flags.namespace.as_deref(), flags.search.as_deref());
    let selects = |service: Option<&str>| {
        let of_namespace = |it: &str| it.split('/').next() == namespace;
        (namespace.is_none() || service.is_some_and(of_namespace))
            && part.is_none_or(|part| service.is_some_and(|it| it.contains(part)))
    };
    let tables = reader.tables().map_err(Failure::new)?;
    let (ended, _) = ended_endpoints(&mut reader, &tables, &selects).map_err(Failure::new)?;
    let mut out = io::stdout().lock();
    let document = || ended_document(&ended);
    let written = match flags.output {
        ShowOutput::Json => DocumentFormat::Json.write(&mut out, &document()),
        ShowOutput::Yaml => DocumentFormat::Yaml.write(&mut out, &document()),
        ShowOutput::Text | ShowOutput::Wide | ShowOutput::Ipvsadm => write_ended(&mut out, &ended),
    };
    self::ended(written).map(|_| Found::Nothing)
}

/// Size of the output buffer in bytes.
const BUFFER: usize = 64 << 10;

/// Repeats until Ctrl-C, until the reader of the output is gone, or until nothing is draining.
async fn watch(reading: &mut Reading<'_>) -> Result<Found, Failure> {
    let mut stop = Box::pin(stop_signal()?);
    let mut notes = Vec::new();
    loop {
        reading.read()?;
        let more = reading.notes();
        more.iter().filter(|note| !notes.contains(*note)).for_each(|note| warn_of(note));
        notes = more;
        if ended(reading.repaint())? == Reader::Gone {
            return Ok(reading.end());
        }
        if reading.flags.draining && reading.end() == Found::Nothing {
            return Ok(Found::Nothing);
        }
        tokio::select! {
            _ = &mut stop => return Ok(reading.end()),
            () = tokio::time::sleep(reading.flags.interval) => {}
        }
    }
}

/// State of the reader of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

/// A closed reader such as `head` is not an error.
fn ended(written: io::Result<()>) -> Result<Reader, Failure> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::new(error)),
    }
}

/// The selected frontends.
struct Selection {
    selector: Selector,
    filter: Filter,
    places: Vec<usize>,
}

impl Selection {
    fn new(flags: &ShowFlags) -> Result<Self, Failure> {
        let filter = Filter {
            namespace: flags.namespace.clone(),
            part: flags.search.clone(),
            endpoints: flags.endpoint.clone(),
            of_services: flags.of_node.endpoints()?,
        };
        let selector = flags.service.clone().unwrap_or_default();
        Ok(Self { selector, filter, places: Vec::new() })
    }

    fn is_specific(&self) -> bool {
        self.selector.is_specific() || self.filter.is_specific()
    }

    fn find(&mut self, services: &Services) {
        self.places = self.selector.select(services);
        self.filter.apply(services, &mut self.places);
    }
}

/// The flags, and the result of the last read.
struct Reading<'a> {
    flags: &'a ShowFlags,
    selection: Selection,
    reader: TableReader,
    conntrack: ReopenedTable,
    services: Services,
    tables: Vec<OurTable>,
    /// Generation of `services`; `None` if they must be read.
    generation: Option<Generation>,
    connections: Result<Connections, String>,
    listed: ClientConnections,
    clients: Clients,
    now: Duration,
    is_first: bool,
}

impl<'a> Reading<'a> {
    fn open(flags: &'a ShowFlags) -> Result<Self, Failure> {
        Ok(Self {
            flags,
            selection: Selection::new(flags)?,
            reader: TableReader::open().map_err(Failure::new)?,
            conntrack: ReopenedTable::default(),
            services: Services::default(),
            tables: Vec::new(),
            generation: None,
            connections: Err(String::new()),
            listed: ClientConnections::default(),
            clients: Clients::default(),
            now: Duration::ZERO,
            is_first: true,
        })
    }

    fn read(&mut self) -> Result<(), Failure> {
        let generation = self.reader.generation().map_err(Failure::new)?;
        if self.generation != Some(generation) {
            let (services, tables) = read_services(&mut self.reader, &self.selection.selector)?;
            // Counters change without a commit.
            let is_still_true = !services.is_torn() && !services.has_counters();
            self.generation = Some(generation).filter(|_| is_still_true);
            self.selection.find(&services);
            (self.services, self.tables) = (services, tables);
        } else {
            refresh_refused(&mut self.reader, &mut self.services).map_err(Failure::new)?;
        }
        self.clients = Clients::read(&mut self.reader, &self.tables).map_err(Failure::new)?;
        self.read_connections()?;
        self.now = since_1970();
        Ok(())
    }

    fn read_connections(&mut self) -> Result<(), Failure> {
        let former = self.connections.as_ref().ok();
        let read = self.conntrack.with(|table| Connections::read(table, &self.services, former));
        self.connections = read.map_err(|error| error.to_string());
        match &self.connections {
            Err(error) if self.flags.draining || self.flags.connections => {
                Err(Failure::new(format!("connections cannot be read: {error}")))
            }
            Ok(_) if self.flags.connections => self.list_connections(),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn list_connections(&mut self) -> Result<(), Failure> {
        let which = if self.flags.draining { OfEndpoints::Draining } else { OfEndpoints::All };
        let (services, places) = (&self.services, &self.selection.places);
        let read = |table: &mut _| ClientConnections::read(table, services, places, which);
        self.listed = self.conntrack.with(read).map_err(Failure::new)?;
        Ok(())
    }

    fn view(&self) -> View<'_> {
        View {
            services: &self.services,
            connections: self.connections.as_ref().ok(),
            clients: &self.clients,
            places: &self.selection.places,
            now: self.now,
        }
    }

    fn end(&self) -> Found {
        Found::if_any(self.flags.draining && self.view().draining().next().is_some())
    }

    /// Returns sentences about missing data in the last read.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.selection.places.is_empty() && self.selection.filter.is_specific() {
            notes.push("no service matches".into());
        }
        if self.services.is_torn() {
            notes.push("the tables changed while they were read: lines may differ in age".into());
        }
        match &self.connections {
            Err(error) => notes.push(format!("connections are not shown: {error}")),
            Ok(connections) if connections.left_out() > 0 => {
                notes.push("too many pairs of address and endpoint: some are not counted".into());
            }
            Ok(_) => {}
        }
        let offloaded = self.connections.as_ref().map_or(0, Connections::offloaded);
        if offloaded > 0 {
            notes.push(format!("connections to all services in the flowtable: {offloaded}"));
        }
        let uncounted = self.clients.uncounted().iter();
        notes.extend(uncounted.map(|family| {
            format!("clients of session affinity in {} are too many to be counted", family.name())
        }));
        notes
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (view, flags) = (self.view(), self.flags);
        match flags.output {
            ShowOutput::Json => self.write_document(out, &view, DocumentFormat::Json),
            ShowOutput::Yaml => self.write_document(out, &view, DocumentFormat::Yaml),
            _ if flags.connections => format::client_connections(out, &view, &self.listed),
            _ if flags.packets.refused => format::refused(out, &view, self.selection.is_specific()),
            _ if flags.draining => format::draining(out, &view),
            ShowOutput::Text if self.selection.selector.is_specific() => {
                format::detail(out, &view)?;
                localhost_listeners::write(out, &view)
            }
            ShowOutput::Text => format::listing(out, &view, false),
            ShowOutput::Wide => format::listing(out, &view, true),
            ShowOutput::Ipvsadm => format::ipvsadm(out, &view),
        }
    }

    fn write_document(
        &self,
        out: &mut dyn Write,
        view: &View<'_>,
        format: DocumentFormat,
    ) -> io::Result<()> {
        let ShowFlags { connections, draining, packets: PacketFlags { refused, .. }, .. } =
            *self.flags;
        if connections {
            format.write(out, &format::client_connections_document(view, &self.listed))
        } else if refused {
            format.write(out, &format::refused_document(view))
        } else if draining {
            format::draining_document(out, view, format)
        } else {
            format::services(out, view, format)
        }
    }

    /// Overwrites the terminal, or appends to other outputs.
    fn repaint(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        if !stdout.is_terminal() {
            let mut out = BufWriter::with_capacity(BUFFER, &mut stdout);
            if !self.is_first && matches!(self.flags.output, ShowOutput::Yaml) {
                writeln!(out, "---")?;
            } else if !self.is_first && self.flags.output != ShowOutput::Json {
                writeln!(out)?;
            }
            self.is_first = false;
            self.write(&mut out)?;
            return out.flush();
        }
        let mut screen = CutOutput::new();
        self.write(&mut screen)?;
        // Redraws without flicker: the cursor goes home, and each line ends with an erase of the
        // rest.
        let start = if std::mem::take(&mut self.is_first) { "\x1b[2J\x1b[H" } else { "\x1b[H" };
        write!(stdout, "{start}{}\x1b[J", screen.text().replace('\n', "\x1b[K\r\n"))?;
        stdout.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_tenth_of_a_second_at_least() {
        assert_eq!(interval("1m30s"), Ok(Duration::from_secs(90)));
        assert!(interval("50ms").is_err() && interval("0").is_err() && interval("x").is_err());
    }
}
