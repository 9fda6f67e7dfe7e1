//! Deletes a link by its name: `RTM_DELLINK` of `<linux/rtnetlink.h>`.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use nft::netlink::link::{IFINFOMSG_LENGTH, IFLA_IFNAME, RTM_DELLINK};
use nft::netlink::message::{self, Header, Meaning, Messages};
use nft::netlink::socket::{Socket, Wait};
use nix::errno::Errno;

const SEQUENCE: u32 = 1;

/// Deletes the link of this name in the network namespace of this thread.
pub(super) fn delete(name: &str) -> io::Result<()> {
    let mut socket = Socket::open(NETLINK_ROUTE)?;
    let flags = message::REQUEST | message::ACK;
    let header = Header { kind: RTM_DELLINK, flags, sequence: SEQUENCE };
    let mut request = Vec::new();
    // With family and index 0, the kernel finds the link by its name.
    message::append(&mut request, header, &[0; IFINFOMSG_LENGTH], |w| w.str(IFLA_IFNAME, name))
        .map_err(io::Error::other)?;
    socket.send(&request)?;
    let answer = socket.receive(Wait::Limited).map_err(io::Error::other)?;
    for message in Messages::new(answer) {
        let meaning = message.and_then(|message| message.meaning()).map_err(io::Error::other)?;
        if let Meaning::Acknowledgement(end) = meaning {
            return match end.errno {
                0 => Ok(()),
                errno => Err(Errno::from_raw(errno).into()),
            };
        }
    }
    Err(io::Error::other("no acknowledgement among the answers"))
}
