//! The daemon's loop on a kernel where anything may go wrong, in virtual time.
//!
//! A sequence of steps is played on one thread: the loop is polled by hand, the kernel's requests
//! are done when the sequence says so, and time passes when it says so. No order of a hash map
//! reaches the kernel or the log. So on the fake kernel a sequence sends the same requests in the
//! same order and logs the same lines, in every process. `tests/simulation.rs` keeps this: see
//! `a_seed_sends_and_logs_the_same_in_every_process`. The real kernel lists elements in an order of
//! its own.

#![allow(dead_code, reason = "each test that includes it uses a part")]

pub(crate) mod fake;
pub(crate) mod kernel;
pub(crate) mod objects;
pub(crate) mod oracle;
pub(crate) mod real;
pub(crate) mod seeds;
pub(crate) mod steps;
pub(crate) mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use conntrack::ConntrackError;
use daemon::conntrack::{Count, FlowList, Request};
use daemon::observe::Observe;
use daemon::read_back::read_back;
use daemon::run::{Balancing, Cleaning, DirectFollowing, Left, Parts, Run, RunError};
use daemon::writer::{Requests, Writer};
use engine::Engine;
use engine::direct::ruleset::table as direct_table;
use engine::direct::{Links, Reach, Unreachable};
use engine::model::{
    Arrival, Change, Event, HostAddresses, LiveConnections, ObjectName, Resource, Scheduler,
    Service,
};
use engine::routing::Routing;
use engine::ruleset::{self, Layouts, SetId};
use engine::{Link, LinkNews};
use fake_kernel::Fake;
use nft::kernel::{ElementRead, Release};
use nft::{
    Device, Element, Family, Name, Operation, Table, TableFlags, TableRef, Transaction, Value,
};
use tokio::sync::{mpsc, watch};

use self::kernel::{Hostile, REFUSED_DEVICE, Shared};
use self::objects::{Objects, PEERS, bystanders, cluster_ip, nodes, peer_address};
use self::oracle::{Oracle, Wanted};
use self::steps::{Happening, LOOKS, Options, Sequence, Step, routing};
use crate::tables::{contents, contents_of_direct_return, settle, settle_unencoded};

/// A daemon that is polled by hand.
struct Daemon<K> {
    run: Pin<Box<dyn Future<Output = Result<Left, RunError>>>>,
    requests: Requests<Hostile<K>>,
    events: mpsc::Sender<Arrival>,
    addresses: watch::Sender<HostAddresses>,
    links: mpsc::Sender<Links>,
    devices: mpsc::Sender<LinkNews>,
    /// Requests to the cleaner.
    asked: Arc<Mutex<Vec<Request>>>,
    /// Sender of lists of flows.
    lists: mpsc::Sender<FlowList>,
    /// The pending request for a count.
    counting: Arc<Mutex<Option<LiveConnections>>>,
    /// Sender of counts.
    counts: mpsc::Sender<Result<Count, ConntrackError>>,
}

struct World<K> {
    kernel: Hostile<K>,
    daemon: Daemon<K>,
    objects: Objects,
    min_interval: Duration,
    flags: TableFlags,
    routing: Routing,
    /// The configuration's number.
    routing_number: u8,
    addresses: Vec<IpAddr>,
    options: Options,
    /// A bit for each node that is on no link of this one.
    off_link: u8,
    /// A bit for each device.
    devices: u8,
    /// Whether an element was lost without a notice since the last check.
    has_lost: bool,
    /// How many commits there were before the daemon began.
    commits_before: usize,
}

/// Longer than the daemon ever waits before it tries again.
const LONGEST_WAIT: Duration = Duration::from_secs(520);

/// More waits than may pass without a commit while something is left to do.
const QUIET_WAITS: usize = 3;

/// The time in which the background check compares everything.
const CHECK_PERIOD: Duration = Duration::from_secs(3_600);

/// More looks than may pass without a change while weights return to even ones.
const QUIET_LOOKS: usize = 8;

/// Rounds of the background check in which it compares everything twice; the first may be partial.
const ROUNDS: usize = 3;

/// More pieces than so many rounds have.
const MAX_PIECES: usize = 200;

/// Plays a sequence; returns the first violation as error.
pub(crate) fn play<K: Shared>(kernel: K, sequence: &Sequence) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(tokio::task::unconstrained(async {
        let mut world = World::start(kernel, sequence);
        world.wait_until_settled().await;
        let wanted = world.wanted();
        world.kernel.begin(&wanted);
        for step in &sequence.steps {
            world.step(step).await?;
        }
        world.check().await
    }))
}

impl<K: Shared> Daemon<K> {
    fn start(
        engine: Engine,
        min_interval: Duration,
        local: Vec<IpAddr>,
        known: (Option<Links>, LinkNews),
    ) -> Self {
        let (writer, requests) = Writer::without_thread();
        let (events, queue) = mpsc::channel(64);
        let (addresses, changes) = watch::channel(local.into());
        let (links, changed) = mpsc::channel(1);
        let (devices, news) = mpsc::channel(1);
        devices.try_send(known.1).expect("it has room for one");
        let direct = known.0.map(|known| {
            links.try_send(known).expect("it has room for one");
            DirectFollowing::of_links(changed)
        });
        let (lists, listed) = mpsc::channel(1);
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let own = Arc::clone(&asked);
        let ask = move |request| own.lock().expect("no test panicked").push(request);
        let counting: Arc<Mutex<Option<LiveConnections>>> = Arc::default();
        let own = Arc::clone(&counting);
        let (counts, counted) = mpsc::channel(1);
        let count = move |live| *own.lock().expect("no test panicked") = Some(live);
        let parts = Parts {
            min_interval,
            check_period: CHECK_PERIOD,
            addresses: Some(changes),
            cleaning: Some(Cleaning::new(ask, listed)),
            balancing: Some(Balancing::new(LOOKS.interval, count, counted)),
            links: daemon::run::Links { direct, devices: Some(news) },
            ..Parts::default()
        };
        let run = Run::new(engine, writer, queue, Observe::new(), parts);
        let run = Box::pin(run.until(std::future::pending()));
        Self { run, requests, events, addresses, links, devices, asked, lists, counting, counts }
    }

    fn send(&mut self, events: Vec<Event>) {
        let now = tokio::time::Instant::now().into_std();
        self.events
            .try_send(Arrival::new(events, now))
            .expect("the loop takes in all events at once");
    }
}

impl<K: Shared> World<K> {
    fn start(kernel: K, sequence: &Sequence) -> Self {
        let flags = flags(sequence.owned);
        let options = sequence.options;
        let (routing, addresses) = (routing(u8::MAX, options), local_addresses(1));
        let mut objects = Objects::default();
        bystanders().iter().for_each(|event| objects.apply(event));
        if options.direct_return {
            nodes().iter().for_each(|event| objects.apply(event));
        }
        let engine = engine(&routing, flags, &addresses);
        let min_interval = sequence.min_interval;
        let known = (options.direct_return.then(|| links(0)), devices(1));
        let daemon = Daemon::start(engine, min_interval, addresses.clone(), known);
        let kernel = Hostile::new(kernel);
        let mut world = Self {
            kernel,
            daemon,
            objects,
            min_interval,
            flags,
            routing,
            routing_number: u8::MAX,
            addresses,
            options,
            off_link: 0,
            devices: 1,
            has_lost: false,
            commits_before: 0,
        };
        world.send_lists();
        world
    }

    /// Sends all objects, as a source does that begins.
    fn send_lists(&mut self) {
        let lists = Resource::ALL.map(|resource| self.objects.list(resource));
        lists.into_iter().for_each(|list| self.daemon.send(list));
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.happens {
            Happening::Events(events) => self.change(events.clone()),
            Happening::ListedAgain { resource, missing } => {
                self.objects.lose(*resource, *missing);
                let list = self.objects.list(*resource);
                self.change(list);
            }
            Happening::LocalAddresses(count) => {
                self.addresses = local_addresses(*count);
                self.daemon.addresses.send_replace(self.addresses.clone().into());
            }
            Happening::Links(missing) => self.change_links(*missing).await,
            Happening::Devices(present) => self.change_devices(*present).await,
            Happening::Time(time) => tokio::time::advance(*time).await,
            Happening::Mishap(mishap) => self.kernel.mishaps.push_back(*mishap),
            Happening::ReadsBreakOff(count) => self.kernel.reads_that_break_off = *count,
            Happening::Refusal(number) => {
                let former = self.kernel.refused.replace(cluster_ip(*number));
                self.keep_served();
                if let Some(former) = former {
                    self.readmit(former).await;
                }
            }
            // A table that is owned cannot be changed by others.
            Happening::Damage(_) | Happening::Deleted(_) | Happening::Forged(_)
                if self.flags.owner && self.kernel.commits > self.commits_before => {}
            Happening::Damage(number) => self.damage(&damage(*number)),
            Happening::Deleted(number) => {
                self.deletion(*number).into_iter().for_each(|it| self.damage(&it));
            }
            Happening::Forged(number) => {
                self.forgery(*number).into_iter().for_each(|it| self.damage(&it));
            }
            Happening::Lost(number) => {
                if let Some(deletion) = self.deletion(*number) {
                    self.kernel.inner.corrupt(&deletion);
                    self.kernel.oracle.forget();
                    self.has_lost = true;
                }
            }
            Happening::ForeignCommit => self.kernel.inner.commit_by_another(&of_another_table()),
            Happening::OwnedElsewhere(table) => {
                self.kernel.owners[usize::from(*table)] = Some(1);
            }
            Happening::OwnerGone => self.kernel.owners = [None; 3],
            Happening::Restart { routing, is_done } => self.restart(*routing, *is_done).await,
            Happening::MaxBatch(bytes) => self.kernel.max_batch = *bytes,
            Happening::Counted(connections) => {
                self.count(connections);
            }
            Happening::Check => self.check().await?,
        }
        self.poll().await;
        for _ in 0..step.answers {
            if !self.answer().await {
                break;
            }
        }
        match self.kernel.oracle.violations.first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    /// The loop takes links in between two commits, and then the latest.
    async fn change_links(&mut self, missing: u8) {
        self.off_link = missing;
        let Some(links) = self.links() else { return };
        while self.daemon.links.capacity() == 0 && self.answer().await {}
        self.daemon.links.try_send(links).expect("the loop takes them in");
    }

    async fn change_devices(&mut self, present: u8) {
        self.devices = present;
        while self.daemon.devices.capacity() == 0 && self.answer().await {}
        self.daemon.devices.try_send(devices(present)).expect("the loop takes them in");
    }

    /// The source sends events. A new service gets a route one commit after its source ranges, also
    /// where another one has ended, or lost the port, in the same batch.
    fn change(&mut self, events: Vec<Event>) {
        let known: BTreeSet<_> = self.objects.services().map(|it| it.name.clone()).collect();
        let of_known = |event: &&Event| {
            matches!(event, Event::Service(Change::Gone(_)))
                || matches!(event, Event::Service(Change::Is(it)) if known.contains(&it.name))
        };
        if events.iter().any(|event| of_known(&event)) {
            let former = self.objects.clone();
            events.iter().filter(of_known).for_each(|event| self.objects.apply(event));
            self.keep_served();
            self.objects = former;
        }
        events.iter().for_each(|event| self.objects.apply(event));
        self.keep_served();
        self.daemon.send(events);
    }

    /// What is known of the links; `None` without direct return.
    fn links(&self) -> Option<Links> {
        self.routing.direct_return.as_ref().map(|_| links(self.off_link))
    }

    fn keep_served(&mut self) {
        let wanted = self.wanted();
        self.kernel.oracle.keep(&wanted.served);
        self.kernel.oracle.know(wanted.serving.keys());
    }

    fn wanted(&self) -> Wanted {
        let refused = self.kernel.refused;
        let services = self.objects.services();
        let is_refused = services
            .filter(|service| {
                let addresses = service.cluster_ips.iter().chain(&service.external_ips);
                addresses.chain(&service.load_balancer_ips).any(|ip| Some(*ip) == refused)
            })
            .map(|service| service.name.clone());
        let is_refused: Vec<ObjectName> = is_refused.collect();
        Wanted::by(&self.objects, &self.routing, |name| is_refused.contains(name))
    }

    async fn restart(&mut self, number: u8, is_done: bool) {
        while is_done && self.daemon.requests.run_next(&mut self.kernel) {}
        let changed = routing(number, self.options);
        let former = std::mem::replace(&mut self.routing, changed);
        self.routing_number = number;
        if former != self.routing {
            self.kernel.oracle.forget_routes();
        }
        self.kernel.inner.reopen();
        self.commits_before = self.kernel.commits;
        self.objects.forget_gone();
        let wanted = self.wanted();
        self.kernel.oracle.forget_ended(&wanted.serving);
        let engine = engine(&self.routing, self.flags, &self.addresses);
        let (addresses, interval) = (self.addresses.clone(), self.min_interval);
        let known = (self.links(), devices(self.devices));
        self.daemon = Daemon::start(engine, interval, addresses, known);
        self.send_lists();
        self.poll().await;
    }

    /// Lets the loop go on as far as it can without an answer of the kernel. The cleaner does at
    /// once what it is asked.
    async fn poll(&mut self) {
        loop {
            let ended = futures::poll!(self.daemon.run.as_mut());
            assert!(ended.is_pending(), "the loop ended: {ended:?}");
            let asked = std::mem::take(&mut *self.daemon.asked.lock().expect("no test panicked"));
            if asked.is_empty() {
                break;
            }
            for request in asked {
                trace::note(format_args!("{request:?}"));
                match request {
                    Request::Delete(flows) => self.kernel.oracle.delete(&flows),
                    // The last list may be waiting still: the daemon takes it when it is settled.
                    Request::List => {
                        let list = FlowList { flows: self.kernel.oracle.flows(), is_clean: true };
                        drop(self.daemon.lists.try_send(list));
                    }
                    // It has no flows of other protocols.
                    Request::Look => {}
                }
            }
        }
    }

    /// Runs the oldest kernel request; returns whether there was one.
    async fn answer(&mut self) -> bool {
        let is_done = self.daemon.requests.run_next(&mut self.kernel);
        self.poll().await;
        is_done
    }

    /// Waits until nothing is committed any more: what others did is looked for between a commit
    /// and the next one; then the tables are read, and unused elements go after a while.
    async fn wait_until_settled(&mut self) {
        while self.answer().await {}
        let mut quiet = 0;
        while quiet < QUIET_WAITS {
            let commits = self.kernel.commits;
            tokio::time::advance(LONGEST_WAIT).await;
            self.poll().await;
            while self.answer().await {}
            quiet = if self.kernel.commits == commits { quiet + 1 } else { 0 };
        }
    }

    /// Another program commits to our tables.
    fn damage(&mut self, transaction: &Transaction) {
        self.kernel.inner.commit_by_another(transaction);
        self.kernel.oracle.forget();
    }

    /// All elements of our tables that packets do not write.
    fn elements(&mut self) -> Vec<(Family, SetId, Element)> {
        let mut elements = Vec::new();
        for (family, set) in Family::ALL.into_iter().flat_map(|it| SetId::ALL.map(|set| (it, set)))
        {
            let mut each = |read: ElementRead<'_>| {
                if let ElementRead::Element(view) = read {
                    let key = ruleset::stray(&view).expect("a key of ours");
                    let data = view.data.map(|it| Value::from_bytes(it).expect("data of ours"));
                    elements.push((family, set, Element { data, ..key }));
                }
            };
            // Without a table, there are none.
            let _ = self.kernel.inner.read_elements(&ruleset::table(family), set.name(), &mut each);
        }
        elements.retain(|(_, set, _)| *set != SetId::AffinityClients);
        elements
    }

    /// Deletes an element of our tables.
    fn deletion(&mut self, number: u8) -> Option<Transaction> {
        let elements = self.elements();
        let chosen = usize::from(number) % elements.len().max(1);
        let (family, set, element) = elements.into_iter().nth(chosen)?;
        Some(Transaction { operations: vec![delete(family, set, element)] })
    }

    /// Gives an element the data of another one in the same set, or adds one with another key.
    fn forgery(&mut self, number: u8) -> Option<Transaction> {
        let elements = self.elements();
        let chosen = usize::from(number / 2) % elements.len().max(1);
        let (family, set, element) = elements.get(chosen)?.clone();
        let mut others = elements.into_iter().filter(|it| (it.0, it.1) == (family, set));
        let other = others.find(|(_, _, other)| other.data != element.data);
        let layout = Arc::clone(Layouts::default().of(family).get(set));
        let add =
            |element| Operation::AddElements(ruleset::table(family), layout, [element].into());
        let operations = match other {
            Some((_, _, other)) if number.is_multiple_of(2) => {
                let forged = Element { data: other.data, ..element.clone() };
                vec![delete(family, set, element), add(forged)]
            }
            _ => {
                let mut key = element.key.as_bytes().to_vec();
                // The last byte of a number, an address or, before its padding, a port.
                let is_number =
                    set.name().starts_with("endpoints") || set.name().starts_with("aff");
                let from_end = if is_number { 1 } else { 3 };
                let place = key.len().checked_sub(from_end)?;
                key[place] ^= 0x10;
                vec![add(Element { key: Value::from_bytes(&key)?, ..element })]
            }
        };
        Some(Transaction { operations })
    }

    /// Waits until everything was compared with the kernel twice.
    async fn wait_until_checked(&mut self) {
        let last = self.kernel.rounds + ROUNDS;
        for _ in 0..MAX_PIECES {
            while self.answer().await {}
            if self.kernel.rounds >= last {
                return self.wait_until_settled().await;
            }
            tokio::time::advance(CHECK_PERIOD).await;
            self.poll().await;
        }
        panic!("the background check does not end");
    }

    /// Answers a request for counts: endpoint after endpoint has as many connections as the next
    /// number says. Returns whether there was a request.
    fn count(&mut self, connections: &[u8]) -> bool {
        let asked = self.daemon.counting.lock().expect("no test panicked").take();
        let Some(mut live) = asked else { return false };
        let mut endpoints: Vec<_> = live.endpoints.iter_mut().collect();
        endpoints.sort_unstable_by_key(|((protocol, target), _)| (protocol.number(), *target));
        let numbers = connections.iter().cycle();
        for ((_, count), connections) in endpoints.into_iter().zip(numbers) {
            *count = u32::from(*connections);
        }
        let count = Count { live, connections: 0, took: Duration::ZERO };
        self.daemon.counts.try_send(Ok(count)).expect("the loop takes in counts at once");
        true
    }

    /// Ends all connections and waits until no weight depends on them.
    async fn wait_until_even(&mut self) {
        let follows = |service: &Service| service.scheduler == Some(Scheduler::LeastConnections);
        if !self.objects.services().any(follows) {
            return;
        }
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            let commits = self.kernel.commits;
            tokio::time::advance(LOOKS.interval).await;
            self.poll().await;
            self.count(&[0]);
            self.poll().await;
            while self.answer().await {}
            quiet = if self.kernel.commits == commits { quiet + 1 } else { 0 };
        }
        self.wait_until_settled().await;
    }

    /// Waits until all is settled and nothing goes wrong any more; then the tables must be those
    /// of a fresh start.
    async fn check(&mut self) -> Result<(), String> {
        self.kernel.calm();
        self.poll().await;
        if let Some(refused) = self.kernel.refused.take() {
            self.readmit(refused).await;
        }
        self.wait_until_settled().await;
        if std::mem::take(&mut self.has_lost) {
            self.wait_until_checked().await;
        }
        self.wait_until_even().await;
        let wanted = self.wanted();
        self.kernel.oracle.check_flows(&wanted.serving);
        self.check_list().await;
        if let Some(violation) = self.kernel.oracle.violations.first() {
            return Err(violation.clone());
        }
        let mut found = contents(&mut self.kernel.inner);
        found.append(&mut contents_of_direct_return(&mut self.kernel.inner));
        let expected = self.fresh();
        if found != expected {
            let mut text = "the tables are not those of a fresh start:\n".to_owned();
            for (name, value) in found.iter().filter(|(name, it)| expected.get(*name) != Some(it)) {
                let _ = writeln!(text, "+ {name}: {value}");
            }
            for (name, value) in expected.iter().filter(|(name, it)| found.get(*name) != Some(it)) {
                let _ = writeln!(text, "- {name}: {value}");
            }
            return Err(text);
        }
        self.kernel.begin(&wanted);
        Ok(())
    }

    /// Of all flows that may begin now, a list makes the daemon delete none.
    async fn check_list(&mut self) {
        let flows = Oracle::flows_of_tables(&mut self.kernel.inner);
        let list = FlowList { flows, is_clean: true };
        self.daemon.lists.try_send(list).expect("the loop is settled and takes lists");
        let ended = futures::poll!(self.daemon.run.as_mut());
        assert!(ended.is_pending(), "the loop ended: {ended:?}");
        let asked = std::mem::take(&mut *self.daemon.asked.lock().expect("no test panicked"));
        let text = |request| format!("what serves is deleted: {request:?}");
        self.kernel.oracle.violations.extend(asked.into_iter().map(text));
    }

    /// Changes the services that the kernel refused, so that they are sent again.
    async fn readmit(&mut self, refused: IpAddr) {
        let services = self.objects.list(Resource::Services);
        for event in
            services.into_iter().filter(|event| format!("{event:?}").contains(&refused.to_string()))
        {
            let Event::Service(Change::Is(service)) = &event else { continue };
            self.change(vec![Event::Service(Change::Gone(service.name.clone()))]);
            self.change(vec![event]);
            self.poll().await;
        }
    }

    /// Returns the tables that a new daemon writes.
    fn fresh(&self) -> BTreeMap<String, String> {
        let mut engine = engine(&self.routing, self.flags, &self.addresses);
        let mut kernel = with_tables(self.routing_number, self.flags.owner);
        let found = read_back(&mut kernel, engine.tables().layouts()).expect("it can be read");
        engine.replace_installed_state(found);
        engine.apply(self.objects.all().cloned());
        engine.learn_devices(devices(self.devices & !REFUSED));
        let Some(links) = self.links() else {
            settle_unencoded(&mut engine, &mut kernel);
            return contents(&mut kernel);
        };
        let start = tokio::time::Instant::now().into_std();
        engine.hand_packets_on(start);
        engine.learn_links(links);
        // What services learn and remember before and after, they do not any more.
        for time in [Duration::ZERO, LONGEST_WAIT, 2 * LONGEST_WAIT] {
            engine.note_time(start + time);
            settle_unencoded(&mut engine, &mut kernel);
        }
        let mut contents = contents(&mut kernel);
        contents.append(&mut contents_of_direct_return(&mut kernel));
        contents
    }
}

/// A fake kernel with the tables of a configuration, but without services. Making them takes more
/// time than most sequences.
pub(crate) fn with_tables(number: u8, owned: bool) -> Fake {
    static KERNELS: [OnceLock<Fake>; 8] = [const { OnceLock::new() }; 8];
    let index = usize::from(number.min(3)) * 2 + usize::from(owned);
    let make = || {
        let routing = routing(number, Options { direct_return: false, flowtable: false });
        let (mut engine, mut kernel) = (engine(&routing, flags(owned), &[]), Fake::new());
        settle(&mut engine, &mut kernel, usize::MAX);
        kernel
    };
    KERNELS[index].get_or_init(make).clone()
}

fn flags(owned: bool) -> TableFlags {
    TableFlags { owner: owned, persist: owned }
}

fn engine(routing: &Routing, flags: TableFlags, addresses: &[IpAddr]) -> Engine {
    let mut engine = Engine::new(routing.clone(), flags);
    engine.suit_kernel(Some(Release::DEVICE_NAMES));
    engine.set_local_addresses(addresses.to_vec());
    engine
}

/// The links of this node, without those to the nodes whose bit is set.
fn links(missing: u8) -> Links {
    let reach = PEERS.map(|number| {
        let on_link = Reach::OnLink { device: 7, hardware_address: [2, 0, 0, 0, 0, number] };
        let is_missing = missing >> number & 1 == 1;
        let reach = if is_missing { Reach::Not(Unreachable::NotOnLink) } else { on_link };
        (peer_address(number), reach)
    });
    Links { reach: reach.collect(), devices: vec!["eth0".into()], ..Links::default() }
}

/// The bit of a device that the kernel refuses.
const REFUSED: u8 = 1 << 3;

/// The devices whose bit is set.
fn devices(present: u8) -> LinkNews {
    let link = |number: u8| Link {
        index: u32::from(number) + 2,
        name: if REFUSED >> number == 1 { REFUSED_DEVICE.into() } else { format!("veth{number}") },
        is_loopback: false,
        has_master: false,
    };
    LinkNews::All((0..4).filter(|number| present >> number & 1 == 1).map(link).collect())
}

fn local_addresses(count: u8) -> Vec<IpAddr> {
    (0..count).map(|number| IpAddr::from([192, 168, 0, number])).collect()
}

/// Another program empties a set, removes the rules of a chain, a whole table or a device. From 8 to 9,
/// it is the table of direct return.
pub(crate) fn damage(number: u8) -> Transaction {
    let table = |family| TableRef::new(family, "kube-proxy");
    let text = |text: &'static str| Name::Borrowed(text);
    let (ip, ip6) = (|| table(Family::Ip), || table(Family::Ip6));
    let veth = |number: &str| Device::Named(Name::Owned(format!("veth{number}")));
    let operation = match number {
        0 => Operation::DeleteTable(ip()),
        1 => Operation::FlushSet(ip(), text("services")),
        2 => Operation::FlushSet(ip(), text("endpoints")),
        3 => Operation::FlushSet(ip6(), text("cluster-ips")),
        4 => Operation::FlushSet(ip(), text("affinity-slots")),
        5 => Operation::FlushSet(ip(), text("affinity-endpoints")),
        6 => Operation::FlushSet(ip(), text("affinity-lists")),
        7 => Operation::FlushChain(ip6(), text("nat-output")),
        8 => Operation::FlushSet(direct_table(), text("nodes")),
        9 => Operation::DeleteTable(direct_table()),
        10 => Operation::DeleteDevices(ip(), ruleset::flowtable(), vec![veth("0")]),
        _ => Operation::AddDevices(ip6(), ruleset::flowtable(), vec![veth("9")]),
    };
    Transaction { operations: vec![operation] }
}

fn delete(family: Family, set: SetId, element: Element) -> Operation {
    let layout = Arc::clone(Layouts::default().of(family).get(set));
    let key = Element { data: None, ..element };
    Operation::DeleteElements(ruleset::table(family), layout, [key].into())
}

fn of_another_table() -> Transaction {
    let (family, flags) = (Family::Ip, TableFlags::default());
    let table = Table { flags, ..Table::new(family, "other") };
    Transaction { operations: vec![Operation::AddTable(table)] }
}
