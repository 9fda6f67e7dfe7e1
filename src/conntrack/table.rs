//! The kernel's conntrack table, on a socket of its own.

use std::collections::BTreeMap;
use std::io;

use ahash::HashSet;
use engine::flow::{Flow, StaleFlow};
use nft::family::Family;
use nft::netlink::message::{ACK, Meaning, Message, MessageError, Messages, REQUEST};
use nft::netlink::socket::{ReceiveError, Socket, Wait};
use nix::errno::Errno;

use super::abi::{IPS_DST_NAT, IPS_OFFLOAD};
use super::connection::Connection;
use super::message::{self, Entry, Filter};

/// Why a request on the conntrack table failed. A part of the entries may have been deleted.
#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    /// The socket failed.
    #[error("the conntrack socket: {0}")]
    Io(#[from] io::Error),
    /// No answer came.
    #[error("the conntrack socket: {0}")]
    Receive(#[from] ReceiveError),
    /// The answer is not a netlink message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The kernel refused a request.
    #[error("the kernel refused a conntrack request: {0}")]
    Refused(Errno),
}

/// The conntrack table of the network namespace in which it was opened.
#[derive(Debug)]
pub struct ConntrackTable {
    socket: Socket,
    sequence: u32,
}

/// Up to this many endpoints and flows are searched with one filtered dump each. With 50,000
/// entries, a filtered dump takes 20 ms whatever it matches; a dump of all entries takes as long as
/// 20 of them (debug build).
const MANY: usize = 16;

/// Answer to the deletion of an entry that no longer exists.
const NO_ENTRY: i32 = Errno::ENOENT as i32;

/// Answer to the deletion of an entry in a flowtable, of some kernels before 6.4.
const IN_FLOWTABLE: i32 = Errno::EBUSY as i32;

/// Deletions in one datagram.
const DELETES: usize = 256;

/// Most distinct flows in a list: about 10 MB while the list exists.
const MAX_FLOWS: usize = 100_000;

/// Most datagrams of one answer; a dump of ten million entries needs fewer.
const MAX_DATAGRAMS: usize = 1 << 17;

/// Entries that a request did not delete.
#[derive(Default)]
struct NotDeleted {
    /// Number of entries that no longer existed.
    gone: usize,
    /// Sequence numbers of the requests for entries that are in a flowtable.
    busy: Vec<u32>,
}

impl ConntrackTable {
    /// Opens the table of the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`Socket::open`].
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(netlink_sys::protocols::NETLINK_NETFILTER)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes the kernel load its modules of conntrack, and with them the sysctls, by a request that
    /// reads one number (`nfnetlink_rcv_msg` loads the module of a request).
    ///
    /// # Errors
    /// See [`ConntrackError`]. EINVAL if the kernel has no such module.
    pub fn load() -> Result<(), ConntrackError> {
        let mut table = Self::open()?;
        let sequence = table.next_sequence(1);
        let mut request = Vec::new();
        message::statistics(&mut request, sequence);
        table.socket.send(&request)?;
        table.receive_answer(sequence, |_| {}).map(drop)
    }

    /// Deletes all entries of these flows. Returns the number of deleted entries of each family.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn delete(&mut self, flows: &HashSet<StaleFlow>) -> Result<[u64; 2], ConntrackError> {
        let mut deleted = [0, 0];
        for filter in filters(flows) {
            let entries = self.entries(&filter, flows)?;
            deleted[filter.family.index()] += self.delete_entries(&entries)? as u64;
        }
        Ok(deleted)
    }

    /// Returns the entries that match `filter` and a pattern in `flows`.
    ///
    /// `CTA_FILTER` in a delete request would save this dump, but kernels before 6.8 refuse it, and
    /// for IPv6 it deletes the wrong entries: see `Filter::attributes`.
    fn entries(
        &mut self,
        filter: &Filter,
        flows: &HashSet<StaleFlow>,
    ) -> Result<Vec<Entry>, ConntrackError> {
        let mut entries = Vec::new();
        self.dump(filter, |entry| {
            if entry.flow.is_among(flows) {
                entries.push(entry);
            }
        })?;
        Ok(entries)
    }

    /// Returns all UDP flows of both families, each once, sorted.
    ///
    /// Leaves out entries of other zones, in which a packet is tracked a second time before or
    /// after its translation, and all beyond 100,000 distinct flows.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn flows(&mut self) -> Result<Vec<Flow>, ConntrackError> {
        let mut flows = HashSet::default();
        for family in Family::ALL {
            self.dump(&Filter::all(family), |Entry { flow, zone, .. }| {
                if zone.is_none() && flows.len() < MAX_FLOWS {
                    flows.insert(flow);
                }
            })?;
        }
        let mut flows: Vec<_> = flows.into_iter().collect();
        flows.sort_unstable();
        Ok(flows)
    }

    /// Calls `each` with every translated connection of both families during the kernel's dump. A
    /// connection may be reported twice or not at all if its entry moves meanwhile.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn connections(&mut self, mut each: impl FnMut(Connection)) -> Result<(), ConntrackError> {
        let sequence = self.next_sequence(1);
        let mut request = Vec::new();
        message::dump_with_status(&mut request, sequence, IPS_DST_NAT);
        self.socket.send(&request)?;
        self.receive_answer(sequence, |object| {
            if let Some(connection) = Connection::decode(object.kind, object.payload) {
                each(connection);
            }
        })?;
        Ok(())
    }

    /// Returns the number of translated connections whose packets a flowtable forwards.
    ///
    /// # Errors
    /// See [`ConntrackError`].
    pub fn count_offloaded(&mut self) -> Result<u64, ConntrackError> {
        let sequence = self.next_sequence(1);
        let mut request = Vec::new();
        message::dump_with_status(&mut request, sequence, IPS_DST_NAT | IPS_OFFLOAD);
        self.socket.send(&request)?;
        let mut count = 0;
        self.receive_answer(sequence, |object| {
            let connection = Connection::decode(object.kind, object.payload);
            count += u64::from(connection.is_some_and(|connection| connection.is_offloaded));
        })?;
        Ok(count)
    }

    fn dump(&mut self, filter: &Filter, mut each: impl FnMut(Entry)) -> Result<(), ConntrackError> {
        let sequence = self.next_sequence(1);
        let mut request = Vec::new();
        message::dump(&mut request, sequence, filter);
        self.socket.send(&request)?;
        self.receive_answer(sequence, |object| {
            if let Some(entry) = Entry::decode(object.kind, object.payload) {
                each(entry);
            }
        })?;
        Ok(())
    }

    /// Deletes these entries. Returns how many still existed.
    fn delete_entries(&mut self, entries: &[Entry]) -> Result<usize, ConntrackError> {
        let mut deleted = 0;
        let mut request = Vec::new();
        for entries in entries.chunks(DELETES) {
            request.clear();
            let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            let first = self.next_sequence(count);
            let last = first + (count - 1);
            for (entry, sequence) in entries.iter().zip(first..) {
                let flags = if sequence == last { REQUEST | ACK } else { REQUEST };
                message::delete(&mut request, sequence, entry, flags);
            }
            self.socket.send(&request)?;
            let refused = self.receive_answer(last, |_| {})?;
            deleted += entries.len() - refused.gone;
            let busy = refused.busy.iter().filter_map(|sequence| sequence.checked_sub(first));
            let busy = busy.filter_map(|place| entries.get(usize::try_from(place).ok()?));
            self.expire_entries(busy)?;
        }
        Ok(deleted)
    }

    /// Deletes entries that are in a flowtable. Some kernels before 6.4 refuse that
    /// (`ctnetlink_del_conntrack`), but accept a timeout of 0 and delete an expired entry when
    /// the entry is looked up.
    fn expire_entries<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Result<(), ConntrackError> {
        let mut request = Vec::new();
        for entry in entries {
            request.clear();
            let first = self.next_sequence(2);
            message::expire(&mut request, first, entry, REQUEST);
            message::delete(&mut request, first + 1, entry, REQUEST | ACK);
            self.socket.send(&request)?;
            self.receive_answer(first + 1, |_| {})?;
        }
        Ok(())
    }

    /// Receives until the end of the request `last`. Returns the entries that were not deleted.
    fn receive_answer(
        &mut self,
        last: u32,
        mut object: impl FnMut(Message<'_>),
    ) -> Result<NotDeleted, ConntrackError> {
        let (mut refused, mut outcome) = (NotDeleted::default(), Ok(()));
        for _ in 0..MAX_DATAGRAMS {
            let datagram = self.socket.receive(Wait::Limited)?;
            for message in Messages::new(datagram) {
                let message = message?;
                match message.meaning()? {
                    Meaning::Object(message) if message.sequence == last => object(message),
                    Meaning::Acknowledgement(end) | Meaning::Done(end) => {
                        match end.errno {
                            0 => {}
                            NO_ENTRY => refused.gone += 1,
                            IN_FLOWTABLE => refused.busy.push(message.sequence),
                            errno => outcome = Err(ConntrackError::Refused(Errno::from_raw(errno))),
                        }
                        if message.sequence == last {
                            return outcome.map(|()| refused);
                        }
                    }
                    Meaning::Overrun => return Err(ReceiveError::Overrun.into()),
                    Meaning::Object(_) | Meaning::Nothing => {}
                }
            }
        }
        Err(ReceiveError::TimedOut.into())
    }

    /// Returns the first of `count` consecutive numbers that no recent request has.
    fn next_sequence(&mut self, count: u32) -> u32 {
        let first = self.sequence.checked_add(count).map_or(0, |_| self.sequence);
        self.sequence = first + count;
        first
    }
}

/// Decodes a message of type `kind` as the entry of a UDP flow and returns the request to delete
/// it. Returns `None` for any other message.
pub fn delete_request(kind: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let entry = Entry::decode(kind, payload)?;
    let mut request = Vec::new();
    message::delete(&mut request, 0, &entry, REQUEST);
    Some(request)
}

/// Returns the dumps that find all of `flows`: one for each endpoint and for each pattern without
/// an endpoint, or, beyond [`MANY`], one for each family.
fn filters(flows: &HashSet<StaleFlow>) -> Vec<Filter> {
    let mut filters: BTreeMap<_, Filter> = BTreeMap::new();
    for flow in flows {
        let filter = filters.entry(flow.endpoint().ok_or(*flow));
        // Second flow of an endpoint: match any destination.
        let widen = |filter: &mut Filter| (filter.address, filter.port) = (None, None);
        filter.and_modify(widen).or_insert_with(|| Filter::of(flow));
    }
    if filters.len() <= MANY {
        return filters.into_values().collect();
    }
    let families = Family::ALL.into_iter();
    let present = families.filter(|family| flows.iter().any(|flow| flow.family() == *family));
    present.map(Filter::all).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU16;

    use engine::model::Target;

    use super::*;

    fn target(text: &str) -> Target {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    /// Returns the flows from each frontend to each endpoint.
    fn between(frontends: &[&str], endpoints: &[&str]) -> HashSet<StaleFlow> {
        let flow = |frontend: &&str, endpoint: &&str| StaleFlow::Between {
            frontend: target(frontend),
            endpoint: target(endpoint),
        };
        frontends.iter().flat_map(|to| endpoints.iter().map(move |by| flow(to, by))).collect()
    }

    #[test]
    fn the_flows_of_an_endpoint_are_found_by_one_dump() {
        let (cluster_ip, external) = ("10.96.0.10:53", "198.51.100.1:53");
        let one = between(&[cluster_ip], &["10.244.0.1:53"]);
        assert_eq!(filters(&one), [Filter::of(one.iter().next().unwrap())]);

        let mut flows = between(&[cluster_ip, external], &["10.244.0.1:53"]);
        flows.extend(between(&["[fd01::1]:53", "[fd01::2]:53"], &["[fd00::1]:53"]));
        flows.insert(StaleFlow::To(target(external)));
        let mut found = filters(&flows);
        found.sort_by_key(|filter| format!("{filter:?}"));
        let answered_by = |text| {
            let endpoint = target(text);
            Filter { endpoint: Some(endpoint), ..Filter::all(Family::of(endpoint.address)) }
        };
        let expected = [
            answered_by("10.244.0.1:53"),
            Filter::of(&StaleFlow::To(target(external))),
            answered_by("[fd00::1]:53"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_flows_of_many_endpoints_are_found_by_one_dump_for_each_family() {
        let endpoints: Vec<_> = (0..=MANY).map(|i| format!("10.244.0.{i}:53")).collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        assert_eq!(filters(&between(&["10.96.0.10:53"], &endpoints[1..])).len(), MANY);
        let many = between(&["10.96.0.10:53"], &endpoints);
        assert_eq!(filters(&many), [Filter::all(Family::Ip)]);
    }
}
