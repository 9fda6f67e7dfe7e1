//! The network devices of this namespace and their changes: `RTM_*LINK` of `<linux/rtnetlink.h>`.
//!
//! After the first list, only notifications are read. If the kernel lost one, all devices are listed
//! again.

use std::io;
use std::thread;
use std::time::Duration;

use engine::{Link, LinkChange, LinkNews};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{
    IFLA_EXT_MASK, IFLA_IFNAME, IFLA_MASTER, RTEXT_FILTER_SKIP_STATS, RTM_DELLINK, RTM_GETLINK,
    RTM_NEWLINK, RTNLGRP_LINK,
};

use crate::rtnetlink::{IFINFOMSG_LENGTH, Rtnetlink};
use nft::netlink::attr::Attrs;
use nft::netlink::message::{self, Message};
use nft::netlink::socket::{Socket, Wait};

const IFF_LOOPBACK: u32 = 0x8;

/// Time in which further changes join the first one of a batch.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Most datagrams of one batch, so that an endless stream of changes does not delay it.
pub(super) const MAX_DATAGRAMS: usize = 10_000;

/// Returns all devices of the calling thread's network namespace.
///
/// # Errors
/// The socket failed, or the answer is damaged.
pub fn list_links() -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    Rtnetlink::open()?.request(
        (RTM_GETLINK, message::DUMP),
        &[0; IFINFOMSG_LENGTH],
        // Statistics are most of each message.
        |w| w.bytes(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes()),
        |message| {
            if let Some(LinkChange::Is(link)) = decode(message.kind, message.payload) {
                links.push(link);
            }
        },
    )?;
    Ok(links)
}

/// Listens to changes of the devices of the network namespace in which it was opened.
#[derive(Debug)]
pub struct LinkListener {
    socket: Socket,
}

impl LinkListener {
    /// Opens the socket. Listing the devices after it misses no change.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::listen(NETLINK_ROUTE, RTNLGRP_LINK, None)? })
    }

    /// Returns the next changes; `None` if there were none within the time limit of a receive.
    ///
    /// # Errors
    /// The socket failed, or devices could not be listed after the kernel dropped notifications.
    pub fn next_news(&mut self) -> io::Result<Option<LinkNews>> {
        let (mut changes, mut is_torn) = (Vec::new(), false);
        let mut each = |message: io::Result<Message<'_>>| {
            match message {
                Ok(message) => changes.extend(decode(message.kind, message.payload)),
                Err(_) => is_torn = true,
            }
            Ok(())
        };
        let is_all = self.socket.take(1, Wait::Limited, &mut each)?;
        if !is_all {
            thread::sleep(SETTLE_TIME);
            self.socket.take(MAX_DATAGRAMS, Wait::No, &mut each)?;
        }
        Ok(match (is_torn, &changes[..]) {
            (true, _) => Some(LinkNews::All(list_links()?)),
            (false, []) => None,
            (false, _) => Some(LinkNews::Changes(changes)),
        })
    }
}

/// Decodes `struct ifinfomsg` and its attributes. Returns `None` for other messages, such as those
/// of a bridge about its ports, which have the family `AF_BRIDGE`.
fn decode(kind: u16, payload: &[u8]) -> Option<LinkChange> {
    let (fixed, attributes) = payload.split_at_checked(IFINFOMSG_LENGTH)?;
    let number = |at: usize| Some(u32::from_ne_bytes(fixed.get(at..at + 4)?.try_into().ok()?));
    let (index, flags) = (number(4)?, number(8)?);
    if fixed[0] != 0 {
        return None;
    }
    match kind {
        RTM_DELLINK => Some(LinkChange::Gone(index)),
        RTM_NEWLINK => {
            let (mut name, mut has_master) = (None, false);
            for attr in Attrs::new(attributes) {
                let attr = attr.ok()?;
                match attr.kind {
                    IFLA_IFNAME => name = attr.str().ok(),
                    IFLA_MASTER => has_master = attr.payload.iter().any(|byte| *byte != 0),
                    _ => {}
                }
            }
            let (name, is_loopback) = (name?.to_owned(), flags & IFF_LOOPBACK != 0);
            Some(LinkChange::Is(Link { index, name, is_loopback, has_master }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nft::netlink::attr::AttrWriter;

    fn payload(family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut payload = vec![family, 0, 0, 0];
        payload.extend([index.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat());
        let mut attributes = AttrWriter::new(&mut payload);
        attributes.str(IFLA_IFNAME, "veth7");
        attributes.bytes(IFLA_MASTER, &3u32.to_ne_bytes());
        payload
    }

    #[test]
    fn a_device_has_index_name_and_master() {
        let name = "veth7".to_owned();
        let link = Link { index: 7, name, is_loopback: false, has_master: true };
        assert_eq!(decode(RTM_NEWLINK, &payload(0, 7, 0)), Some(LinkChange::Is(link.clone())));
        let loopback = Link { is_loopback: true, ..link };
        let read = decode(RTM_NEWLINK, &payload(0, 7, IFF_LOOPBACK));
        assert_eq!(read, Some(LinkChange::Is(loopback)));
        assert_eq!(decode(RTM_DELLINK, &payload(0, 7, 0)), Some(LinkChange::Gone(7)));
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_not_gone() {
        assert_eq!(decode(RTM_DELLINK, &payload(7, 7, 0)), None);
    }

    #[test]
    fn a_damaged_notification_never_panics() {
        let whole = payload(0, 7, 0);
        for length in 0..whole.len() {
            let _ = decode(RTM_NEWLINK, &whole[..length]);
        }
    }

    #[test]
    fn the_loopback_device_is_listed() {
        assert!(list_links().unwrap().iter().any(|link| link.is_loopback && link.name == "lo"));
    }
}
