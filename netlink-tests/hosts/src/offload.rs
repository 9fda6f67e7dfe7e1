//! Whether a device cuts and joins segments of TCP, by generic netlink (`<linux/genetlink.h>`,
//! `<linux/ethtool_netlink.h>`).

use nft::netlink::attr::{AttrWriter, Attrs};
use nft::netlink::message::{ACK, Header, Meaning, Messages, REQUEST, append};
use nft::netlink::socket::{Socket, Wait};

use crate::namespace::Namespace;

/// How packets of TCP pass a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// Many segments pass as one packet, and arriving ones are joined (TSO, GSO and GRO).
    Joined,
    /// Each is a packet of its own.
    Single,
}

/// Sets the offloads of a device.
pub(crate) fn set_segments(namespace: &Namespace, device: &str, segments: Segments) {
    namespace.run(|| {
        let mut kernel = Socket::open(GENERIC).expect("a generic netlink socket");
        let mut family = None;
        ask(
            &mut kernel,
            CONTROLLER,
            GET_FAMILY,
            |w| w.str(FAMILY_NAME, "ethtool"),
            |reply| {
                let id = Attrs::new(reply).flatten().find(|attribute| attribute.kind == FAMILY_ID);
                family = id.and_then(|id| Some(u16::from_ne_bytes(*id.payload.first_chunk()?)));
            },
        );
        let family = family.expect("a kernel with ethtool's netlink");
        let settings = |w: &mut AttrWriter<'_>| {
            w.nest(HEADER, |w| w.str(DEVICE_NAME, device));
            w.nest(WANTED, |w| w.nest(BITS, |w| write_features(w, segments)));
        };
        ask(&mut kernel, family, SET_FEATURES, settings, |_| ());
    });
}

fn write_features(w: &mut AttrWriter<'_>, segments: Segments) {
    for feature in FEATURES {
        w.nest(BIT, |w| {
            w.str(BIT_NAME, feature);
            if segments == Segments::Joined {
                w.bytes(BIT_VALUE, &[]);
            }
        });
    }
}

/// Sends a command with attributes, and hands the attributes of each reply to `each` until the
/// kernel acknowledges.
#[track_caller]
fn ask(
    kernel: &mut Socket,
    family: u16,
    command: u8,
    attributes: impl FnOnce(&mut AttrWriter<'_>),
    mut each: impl FnMut(&[u8]),
) {
    let header = Header { kind: family, flags: REQUEST | ACK, sequence: 1 };
    let mut message = Vec::new();
    let generic: [u8; GENERIC_HEADER] = [command, VERSION, 0, 0];
    append(&mut message, header, &generic, attributes).expect("a short request");
    kernel.send(&message).expect("the kernel takes requests");
    loop {
        let answer = kernel.receive(Wait::Limited).expect("an answer");
        for message in Messages::new(answer) {
            let message = message.expect("a whole message");
            match message.meaning().expect("a whole message") {
                Meaning::Acknowledgement(end) => {
                    assert_eq!(end.errno, 0, "command {command} of family {family}");
                    return;
                }
                Meaning::Object(reply) => {
                    each(reply.payload.get(GENERIC_HEADER..).unwrap_or_default());
                }
                other @ (Meaning::Done(_) | Meaning::Nothing | Meaning::Overrun) => {
                    panic!("no answer to command {command}: {other:?}")
                }
            }
        }
    }
}

/// Of `netdev_features_strings` in net/ethtool/common.c.
const FEATURES: [&str; 4] =
    ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation", "rx-gro"];

/// `NETLINK_GENERIC`.
const GENERIC: isize = 16;

/// Bytes of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;
const VERSION: u8 = 1;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, and `CTRL_ATTR_*`.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `ETHTOOL_MSG_FEATURES_SET`, and `ETHTOOL_A_*`.
const SET_FEATURES: u8 = 12;
const HEADER: u16 = 1;
const DEVICE_NAME: u16 = 2;
const WANTED: u16 = 3;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
