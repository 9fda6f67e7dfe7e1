//! The services of a storm, their endpoints, and the changes of these.
//!
//! Every endpoint is in the pool of one service, so the address that answers names both. An endpoint
//! takes these states in turn: an endpoint is removed only after the kernel was seen to hold it, and
//! added only after it was seen to be gone. So no event of an earlier turn is still under way.
//!
//! ```text
//! Gone -> (pushed) -> Added -> (in the kernel) -> Held -> (pushed) -> Removed -> (not there) -> Gone
//! ```

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use netlink_tests::NODE_IP;
use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, service};
use nft::kernel::{ElementRead, Kernel, Nftables, ReadError};
use nft::{Family, TableRef};
use serde_json::{Value, json};

use super::clock::Clock;

/// Services whose endpoints change.
pub(crate) const SERVICES: usize = 500;

/// Addresses that a service has endpoints of.
const POOL: usize = 8;

/// Endpoints of a service: the first, the fewest and the most.
const FIRST: usize = 3;
const FEWEST: usize = 2;
const MOST: usize = 6;

/// All addresses of endpoints are in this range of 16 bits.
pub(crate) const ENDPOINTS: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 0);
pub(crate) const ENDPOINT_PORT: u16 = 8080;
const PORT: u16 = 80;

/// Services that are tried for a change.
const TRIES: usize = 10;

/// How often the kernel is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The interval of pushes; the number of changes in each follows the rate.
const PUSH: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Gone,
    Added,
    Held,
    Removed,
}

/// The endpoints in the API server and in the kernel.
#[derive(Debug)]
pub(crate) struct Endpoints {
    states: Mutex<Vec<State>>,
    /// When each was found removed, [`NEVER`] in all other states.
    gone_at: Vec<AtomicU64>,
    /// Endpoints that were added or removed.
    pub(crate) changes: AtomicUsize,
    /// Looks at the kernel that commits did not spoil.
    pub(crate) looks: AtomicUsize,
}

const NEVER: u64 = u64::MAX;

/// How a service is reached.
fn kind(service: usize) -> &'static str {
    ["cluster IP", "node port", "load balancer address", "affinity"][service % 4]
}

/// The address that clients of a service use.
pub(crate) fn frontend(service: usize) -> SocketAddrV4 {
    match kind(service) {
        "node port" => SocketAddrV4::new(NODE_IP, node_port(service)),
        "load balancer address" => SocketAddrV4::new(nth([198, 18, 0, 0], service), PORT),
        _ => SocketAddrV4::new(cluster_ip(service), PORT),
    }
}

fn cluster_ip(service: usize) -> Ipv4Addr {
    nth([10, 96, 1, 0], service)
}

fn node_port(service: usize) -> u16 {
    30_000 + u16::try_from(service).unwrap()
}

fn nth(first: [u8; 4], number: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(first)) + u32::try_from(number).unwrap())
}

fn address(endpoint: usize) -> Ipv4Addr {
    nth(ENDPOINTS.octets(), endpoint)
}

/// The endpoint with this address.
fn endpoint(address: Ipv4Addr) -> Option<usize> {
    let number = u32::from(address).checked_sub(ENDPOINTS.into())?;
    usize::try_from(number).ok().filter(|number| *number < SERVICES * POOL)
}

fn service_object(number: usize) -> Value {
    let mut object = service(&format!("storm/s{number}"), &cluster_ip(number).to_string(), PORT);
    let spec = &mut object["spec"];
    match kind(number) {
        "node port" => {
            spec["type"] = "NodePort".into();
            spec["ports"][0]["nodePort"] = node_port(number).into();
        }
        "load balancer address" => {
            spec["type"] = "LoadBalancer".into();
            let ip = frontend(number).ip().to_string();
            object["status"] = json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
        }
        "affinity" => {
            spec["sessionAffinity"] = "ClientIP".into();
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
        }
        _ => {}
    }
    object
}

fn slice(service: usize, endpoints: &[usize]) -> Value {
    let addresses: Vec<_> = endpoints.iter().map(|it| address(*it).to_string()).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let name = format!("s{service}");
    endpoint_slice(&format!("storm/{name}-1"), &name, &addresses, ENDPOINT_PORT)
}

impl Endpoints {
    /// All services with their first endpoints.
    pub(crate) fn push_all(api: &ApiServer) -> Self {
        let first = |service| (service * POOL..service * POOL + FIRST).collect::<Vec<_>>();
        let objects = (0..SERVICES).flat_map(|it| [service_object(it), slice(it, &first(it))]);
        api.push_all(objects);
        let added_first = |endpoint: usize| endpoint % POOL < FIRST;
        let all = 0..SERVICES * POOL;
        let state = |it| if added_first(it) { State::Added } else { State::Gone };
        let gone_at = |it| AtomicU64::new(if added_first(it) { NEVER } else { 0 });
        Self {
            states: Mutex::new(all.clone().map(state).collect()),
            gone_at: all.map(gone_at).collect(),
            changes: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
        }
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap()
    }

    /// Whether each endpoint is in the kernel, or removed from it, as desired.
    pub(crate) fn are_settled(&self) -> bool {
        self.states().iter().all(|state| matches!(state, State::Held | State::Gone))
    }

    /// Whether `address` may answer a connection to `service` that began at `start`.
    pub(crate) fn check(
        &self,
        service: usize,
        address: Ipv4Addr,
        start: u64,
    ) -> Result<(), String> {
        let endpoint = endpoint(address).filter(|endpoint| endpoint / POOL == service);
        let Some(endpoint) = endpoint else {
            return Err(format!("s{service} led to {address}, which is of another service"));
        };
        match self.gone_at[endpoint].load(SeqCst) {
            gone if gone < start => {
                let since = Duration::from_nanos(start - gone);
                Err(format!("s{service} led to {address}, which was removed at {since:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Pushes changes at this rate until `ended`.
    pub(crate) fn change(&self, api: &ApiServer, per_second: usize, ended: &AtomicBool) {
        let clock = Clock::start();
        let mut random = Random(1);
        let mut pushed = 0;
        while !ended.load(SeqCst) {
            let due = clock.elapsed().as_millis() as usize * per_second / 1_000;
            while pushed < due {
                if !(0..TRIES).any(|_| self.change_one(api, &mut random)) {
                    break;
                }
                pushed += 1;
            }
            // While no daemon commits there is little to change; one second is made up for.
            pushed = pushed.max(due.saturating_sub(per_second));
            thread::sleep(PUSH);
        }
    }

    /// Adds an endpoint to a service, removes one, or both; returns false if earlier changes of the
    /// chosen one are not in the kernel yet.
    fn change_one(&self, api: &ApiServer, random: &mut Random) -> bool {
        let service = random.below(SERVICES);
        let mut states = self.states();
        let pool = service * POOL..(service + 1) * POOL;
        let all = |wanted| pool.clone().filter(|it| states[*it] == wanted).collect::<Vec<_>>();
        let (gone, added, held) = (all(State::Gone), all(State::Added), all(State::Held));
        let count = added.len() + held.len();
        let turn = random.below(3);
        let add = Some(&gone).filter(|it| !it.is_empty() && turn != 0 && count < MOST);
        let remove = Some(&held).filter(|it| !it.is_empty() && turn != 1 && count > FEWEST);
        let [add, remove] = [add, remove].map(|it| it.map(|it| it[random.below(it.len())]));
        if let Some(endpoint) = add {
            self.gone_at[endpoint].store(NEVER, SeqCst);
            states[endpoint] = State::Added;
        }
        if let Some(endpoint) = remove {
            states[endpoint] = State::Removed;
        }
        let active: Vec<_> =
            pool.filter(|it| matches!(states[*it], State::Added | State::Held)).collect();
        let is_changed = add.or(remove).is_some();
        if is_changed {
            // Under the lock, so that removal and disappearance are seen in their order.
            api.push(slice(service, &active));
            self.changes
                .fetch_add(usize::from(add.is_some()) + usize::from(remove.is_some()), SeqCst);
        }
        is_changed
    }

    /// Compares with the kernel's tables until `ended`.
    pub(crate) fn watch(&self, kernel: &mut Nftables, clock: &Clock, ended: &AtomicBool) {
        while !ended.load(SeqCst) {
            self.look(kernel, clock);
            thread::sleep(LOOK);
        }
    }

    fn look(&self, kernel: &mut Nftables, clock: &Clock) {
        let before = self.states().clone();
        // A commit in between may move an endpoint to a slot that was read before.
        let generation = kernel.generation().ok();
        let Ok(held) = endpoints_held(kernel) else { return };
        if generation.is_none() || kernel.generation().ok() != generation {
            return;
        }
        let now = clock.nanoseconds();
        let mut states = self.states();
        for (endpoint, state) in states.iter_mut().enumerate() {
            match (*state, held.contains(&endpoint)) {
                (State::Added, true) => *state = State::Held,
                (State::Removed, false) if before[endpoint] == State::Removed => {
                    self.gone_at[endpoint].store(now, SeqCst);
                    *state = State::Gone;
                }
                _ => {}
            }
        }
        self.looks.fetch_add(1, SeqCst);
    }
}

/// The endpoints in the kernel's IPv4 table.
fn endpoints_held(kernel: &mut Nftables) -> Result<HashSet<usize>, ReadError> {
    let table = TableRef::new(Family::Ip, "kube-proxy");
    let mut all = HashSet::new();
    for map in ["endpoints", "affinity-endpoints"] {
        let mut held = HashSet::new();
        kernel.read_elements(&table, map, &mut |read| match read {
            ElementRead::Start => held.clear(),
            ElementRead::Element(view) => {
                let data = view.to_element().and_then(|element| element.data);
                let octets = data.and_then(|data| data.as_bytes().first_chunk::<4>().copied());
                held.extend(octets.and_then(|octets| endpoint(octets.into())));
            }
        })?;
        all.extend(held);
    }
    Ok(all)
}

/// Numbers that look random (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
