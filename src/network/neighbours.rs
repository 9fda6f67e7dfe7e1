//! The neighbours of this network namespace (ARP and neighbour discovery) and their changes:
//! `RTM_*NEIGH` of `<linux/rtnetlink.h>` and `struct ndmsg` of `<linux/neighbour.h>`.
//!
//! Numbers of rtnetlink are in host byte order, addresses in network byte order.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::libc::{
    NDA_DST, NDA_LLADDR, NTF_PROXY, NTF_USE, NUD_PERMANENT, NUD_PROBE, RTM_DELADDR, RTM_DELLINK,
    RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK, RTNLGRP_NEIGH,
};

use crate::rtnetlink::Rtnetlink;
use nft::netlink::attr::{AttrWriter, Attrs};
use nft::netlink::message::{self, CREATE, Message};
use nft::netlink::socket::{Socket, Wait};
use nft::{Family, Value};

use super::links::MAX_DATAGRAMS;
use super::route::address_of;

/// An entry of the kernel's neighbour tables: an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Index of the interface that leads to it.
    pub interface: u32,
    /// What the kernel knows about it.
    pub state: NeighbourState,
    /// Its Ethernet address; `None` if unknown, or if the link has addresses of another kind.
    pub hardware_address: Option<[u8; 6]>,
    /// Another program wrote the entry (`NTF_EXT_LEARNED`), or asked the kernel to confirm it
    /// (`NTF_EXT_MANAGED`).
    pub is_external: bool,
}

impl Neighbour {
    /// Returns whether [`Rtnetlink::probe`] leaves the settings of the entry as they are:
    /// `__neigh_update` drops the flags that a request lacks, and makes a permanent entry an
    /// ordinary one.
    pub fn can_be_probed(&self) -> bool {
        let is_fixed = matches!(self.state, NeighbourState::NoArp | NeighbourState::Permanent);
        !is_fixed && !self.is_external
    }
}

/// State of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// `NUD_NONE`: a new entry.
    New,
    /// `NUD_INCOMPLETE`: the kernel asks for the hardware address.
    Incomplete,
    /// `NUD_REACHABLE`: it answered lately.
    Reachable,
    /// `NUD_STALE`: it answered some time ago.
    Stale,
    /// `NUD_DELAY`: the kernel will ask again unless an upper layer confirms the neighbour.
    Delay,
    /// `NUD_PROBE`: the kernel asks whether the hardware address is still right.
    Probe,
    /// `NUD_FAILED`: it did not answer.
    Failed,
    /// `NUD_NOARP`: the link needs no hardware address.
    NoArp,
    /// `NUD_PERMANENT`: an administrator set the hardware address.
    Permanent,
}

/// A change of one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourChange {
    /// The neighbour is new or may have changed.
    Is(Neighbour),
    /// The kernel has no entry of this address at this interface any more.
    Gone(IpAddr, u32),
}

impl NeighbourChange {
    /// Returns the address and the index of the interface.
    pub fn place(&self) -> (IpAddr, u32) {
        match self {
            Self::Is(Neighbour { address, interface, .. }) | Self::Gone(address, interface) => {
                (*address, *interface)
            }
        }
    }
}

impl Rtnetlink {
    /// Returns all neighbours of a family.
    ///
    /// # Errors
    /// The socket failed, or the answer is damaged.
    pub fn neighbours(&mut self, family: Family) -> io::Result<Vec<Neighbour>> {
        let mut neighbours = Vec::new();
        let fixed = ndmsg(family.number(), 0, 0, 0);
        let each = |message: Message<'_>| {
            if let Some(NeighbourChange::Is(it)) = decode(message.kind, message.payload) {
                neighbours.push(it);
            }
        };
        self.request((RTM_GETNEIGH, message::DUMP), &fixed, |_| {}, each)?;
        Ok(neighbours)
    }

    /// Makes the kernel ask the neighbour for its hardware address, with ARP or neighbour
    /// discovery, and adds an entry if there is none. A known address stays in use meanwhile. Must
    /// not be called for an entry that [cannot be probed](Neighbour::can_be_probed).
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`, ENODEV without the interface, ENOBUFS if the table is full
    /// (sysctl `gc_thresh3`).
    pub fn probe(&mut self, address: IpAddr, interface: u32) -> io::Result<()> {
        // In this state the kernel asks at once. With NTF_USE it asks only after the entry has
        // become stale, and then 5 s later (sysctl `delay_first_probe_time`).
        let confirmed = self.change_neighbour(address, interface, (NUD_PROBE, 0, 0));
        let without_hardware_address = |error: &io::Error| {
            let errno = error.raw_os_error().map(Errno::from_raw);
            matches!(errno, Some(Errno::ENOENT | Errno::EINVAL))
        };
        match confirmed {
            Err(error) if without_hardware_address(&error) => {
                // The kernel behaves as if it had a packet for the neighbour.
                self.change_neighbour(address, interface, (0, NTF_USE, CREATE))
            }
            done => done,
        }
    }

    /// Sends `RTM_NEWNEIGH` with a state, flags of the entry, and flags of the message.
    fn change_neighbour(
        &mut self,
        address: IpAddr,
        interface: u32,
        (state, entry_flags, flags): (u16, u8, u16),
    ) -> io::Result<()> {
        let fixed = ndmsg(Family::of(address).number(), interface, state, entry_flags);
        let fill = |w: &mut AttrWriter<'_>| w.bytes(NDA_DST, Value::new().ip(address).as_bytes());
        self.change(RTM_NEWNEIGH, flags, &fixed, fill)
    }
}

/// Changes since the last look at a [`NeighbourListener`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NeighbourChanges {
    /// Changes of neighbours in order.
    pub neighbours: Vec<NeighbourChange>,
    /// A device changed, or an address of a device.
    pub is_device_changed: bool,
    /// The kernel dropped notifications: everything is to be listed again.
    pub is_torn: bool,
}

/// Listens to changes of neighbours, of devices and of their addresses in the network namespace in
/// which it was opened.
#[derive(Debug)]
pub struct NeighbourListener {
    socket: Socket,
}

impl NeighbourListener {
    /// Opens the socket. Listing the neighbours after it misses no change.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::listen(NETLINK_ROUTE, RTNLGRP_NEIGH, None)?;
        for group in [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR] {
            socket.join(group)?;
        }
        Ok(Self { socket })
    }

    /// Returns the changes that have arrived, of at most 10,000 datagrams. Does not block.
    ///
    /// # Errors
    /// The socket failed.
    pub fn take_changes(&mut self) -> io::Result<NeighbourChanges> {
        let mut changes = NeighbourChanges::default();
        self.socket.take(MAX_DATAGRAMS, Wait::No, &mut |message| {
            changes.add(&message);
            Ok(())
        })?;
        Ok(changes)
    }
}

impl AsFd for NeighbourListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NeighbourChanges {
    /// Adds the change that a message reports.
    fn add(&mut self, message: &io::Result<Message<'_>>) {
        let Ok(message) = message else {
            self.is_torn = true;
            return;
        };
        match message.kind {
            RTM_NEWNEIGH | RTM_DELNEIGH => {
                self.neighbours.extend(decode(message.kind, message.payload));
            }
            RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR => self.is_device_changed = true,
            _ => {}
        }
    }
}

/// Returns `struct ndmsg`.
pub(super) fn ndmsg(family: u8, interface: u32, state: u16, flags: u8) -> [u8; NDMSG_LENGTH] {
    let mut fixed = [0; NDMSG_LENGTH];
    fixed[0] = family;
    fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
    fixed[8..10].copy_from_slice(&state.to_ne_bytes());
    fixed[10] = flags;
    fixed
}

/// Decodes `struct ndmsg` and its attributes. Returns `None` for other messages: entries of a
/// bridge, which have the family `AF_BRIDGE`, and addresses that this node answers for.
#[deny(clippy::indexing_slicing)]
fn decode(kind: u16, payload: &[u8]) -> Option<NeighbourChange> {
    let (fixed, attributes) = payload.split_first_chunk::<NDMSG_LENGTH>()?;
    let [family, _, _, _, a, b, c, d, e, f, flags, _] = *fixed;
    let (interface, state) = (u32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]));
    if !Family::ALL.map(Family::number).contains(&family) || flags & NTF_PROXY != 0 {
        return None;
    }
    let (mut destination, mut hardware_address) = (None, None);
    let mut is_external = flags & NTF_EXT_LEARNED != 0;
    for attr in Attrs::new(attributes) {
        let attr = attr.ok()?;
        match (attr.kind, attr.payload) {
            (NDA_DST, bytes) => destination = address_of(bytes),
            (NDA_LLADDR, bytes) => hardware_address = bytes.try_into().ok(),
            (NDA_FLAGS_EXT, &[a, b, c, d]) => {
                is_external |= u32::from_ne_bytes([a, b, c, d]) & NTF_EXT_MANAGED != 0;
            }
            (_, _) => {}
        }
    }
    let address = destination.filter(|it| Family::of(*it).number() == family)?;
    match kind {
        RTM_DELNEIGH => Some(NeighbourChange::Gone(address, interface)),
        RTM_NEWNEIGH => Some(NeighbourChange::Is(Neighbour {
            address,
            interface,
            state: decode_state(state)?,
            hardware_address,
            is_external,
        })),
        _ => None,
    }
}

fn decode_state(state: u16) -> Option<NeighbourState> {
    STATES.iter().find(|(number, _)| *number == state).map(|(_, state)| *state)
}

/// The states with their numbers, `NUD_*` of `<linux/neighbour.h>`.
const STATES: [(u16, NeighbourState); 9] = [
    (0, NeighbourState::New),
    (0x01, NeighbourState::Incomplete),
    (0x02, NeighbourState::Reachable),
    (0x04, NeighbourState::Stale),
    (0x08, NeighbourState::Delay),
    (NUD_PROBE, NeighbourState::Probe),
    (0x20, NeighbourState::Failed),
    (0x40, NeighbourState::NoArp),
    (NUD_PERMANENT, NeighbourState::Permanent),
];

// <linux/neighbour.h>
pub(super) const NDMSG_LENGTH: usize = 12;
const NDA_FLAGS_EXT: u16 = 15;
const NTF_EXT_LEARNED: u8 = 0x10;
const NTF_EXT_MANAGED: u32 = 0x1;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use nft::netlink::attr::AttrWriter;
    use nft::netlink::message::Messages;

    const MAC: [u8; 6] = [2, 0, 1, 0, 0, 0x65];
    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 50, 3));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3));

    fn payload(address: IpAddr, state: u16, flags: u8) -> Vec<u8> {
        let mut payload = ndmsg(Family::of(address).number(), 7, state, flags).to_vec();
        AttrWriter::new(&mut payload).bytes(NDA_DST, Value::new().ip(address).as_bytes());
        payload
    }

    fn with_attribute(mut payload: Vec<u8>, kind: u16, value: &[u8]) -> Vec<u8> {
        AttrWriter::new(&mut payload).bytes(kind, value);
        payload
    }

    #[track_caller]
    fn neighbour(payload: &[u8]) -> Neighbour {
        match decode(RTM_NEWNEIGH, payload) {
            Some(NeighbourChange::Is(neighbour)) => neighbour,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_neighbour_has_address_interface_state_and_hardware_address() {
        for address in [V4, V6] {
            for (number, state) in STATES {
                let payload = with_attribute(payload(address, number, 0), NDA_LLADDR, &MAC);
                let hardware_address = Some(MAC);
                let expected = Neighbour {
                    address,
                    interface: 7,
                    state,
                    hardware_address,
                    is_external: false,
                };
                assert_eq!(neighbour(&payload), expected);
            }
        }
    }

    #[test]
    fn a_message_of_the_kernel_is_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        // Linux 6.18: 192.168.50.3 dev eth1 lladdr 02:00:01:00:00:65 REACHABLE
        let payload = [
            [2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 1].as_slice(),
            &[8, 0, 1, 0, 192, 168, 50, 3],
            &[10, 0, 2, 0, 2, 0, 1, 0, 0, 0x65, 0, 0],
            &[8, 0, 4, 0, 0, 0, 0, 0],
        ]
        .concat();
        let expected = Neighbour {
            address: V4,
            interface: 3,
            state: NeighbourState::Reachable,
            hardware_address: Some(MAC),
            is_external: false,
        };
        assert_eq!(neighbour(&payload), expected);
    }

    #[test]
    fn an_entry_that_vanishes_is_gone() {
        let payload = payload(V6, 0x20, 0);
        assert_eq!(decode(RTM_DELNEIGH, &payload), Some(NeighbourChange::Gone(V6, 7)));
        assert_eq!(decode(RTM_GETNEIGH, &payload), None, "a request of the kernel");
    }

    #[test]
    fn a_hardware_address_of_another_length_is_none() {
        for address in [&MAC[..4], &[0; 20], &[]] {
            let payload = with_attribute(payload(V4, 2, 0), NDA_LLADDR, address);
            assert_eq!(neighbour(&payload).hardware_address, None);
        }
    }

    #[test]
    fn an_entry_of_a_bridge_and_a_proxied_address_are_no_neighbours() {
        let mut bridge = payload(V4, 2, 0);
        bridge[0] = 7;
        assert_eq!(decode(RTM_NEWNEIGH, &bridge), None);
        assert_eq!(decode(RTM_NEWNEIGH, &payload(V4, 2, NTF_PROXY)), None);
    }

    #[test]
    fn an_address_of_the_other_family_is_no_neighbour() {
        let mut payload = payload(V4, 2, 0);
        payload[0] = Family::Ip6.number();
        assert_eq!(decode(RTM_NEWNEIGH, &payload), None);
    }

    #[test]
    fn entries_of_administrators_and_other_programs_are_not_probed() {
        let probed = STATES.map(|(number, _)| neighbour(&payload(V4, number, 0)).can_be_probed());
        assert_eq!(probed, [true, true, true, true, true, true, true, false, false]);
        assert!(!neighbour(&payload(V4, 2, NTF_EXT_LEARNED)).can_be_probed());
        let flags =
            |bits: u32| with_attribute(payload(V4, 2, 0), NDA_FLAGS_EXT, &bits.to_ne_bytes());
        assert!(!neighbour(&flags(NTF_EXT_MANAGED)).can_be_probed());
        assert!(neighbour(&flags(0)).can_be_probed());
    }

    fn changes_in(datagram: &[u8]) -> NeighbourChanges {
        let mut changes = NeighbourChanges::default();
        Messages::new(datagram).for_each(|it| changes.add(&it.map_err(io::Error::other)));
        changes
    }

    #[test]
    fn a_change_of_a_device_or_of_its_addresses_is_recorded() {
        let changes = |kind| {
            let mut datagram = Vec::new();
            let header = nft::netlink::message::Header { kind, flags: 0, sequence: 0 };
            nft::netlink::message::append(&mut datagram, header, &payload(V4, 2, 0), |_| {})
                .unwrap();
            let changes = changes_in(&datagram);
            (changes.neighbours.len(), changes.is_device_changed)
        };
        for kind in [RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR] {
            assert_eq!(changes(kind), (0, true));
        }
        assert_eq!((changes(RTM_NEWNEIGH), changes(RTM_DELNEIGH)), ((1, false), (1, false)));
    }

    #[test]
    fn a_damaged_datagram_leads_to_a_new_list() {
        assert!(changes_in(&[1, 2, 3]).is_torn);
    }

    proptest! {
        #[test]
        fn a_damaged_message_never_panics(
            length in 0..200_usize,
            damage in prop::collection::vec((0..200_usize, any::<u8>()), 0..8),
        ) {
            let whole = with_attribute(payload(V6, 2, 0), NDA_LLADDR, &MAC);
            let mut bytes = with_attribute(whole, NDA_FLAGS_EXT, &[0; 4]);
            bytes.truncate(length);
            for (at, byte) in damage {
                if let Some(target) = bytes.get_mut(at) {
                    *target = byte;
                }
            }
            let _ = (decode(RTM_NEWNEIGH, &bytes), decode(RTM_DELNEIGH, &bytes));
        }
    }
}
