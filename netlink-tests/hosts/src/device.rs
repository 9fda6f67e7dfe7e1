//! The kinds of devices by which a host is on a link.

use nix::errno::Errno;
use rtnetlink::packet_route::link::{LinkMessage, MacVlanMode};
use rtnetlink::{Error, LinkBond, LinkMacVlan, LinkUnspec, LinkVlan};

use crate::link::{ETH0, HardwareAddress, connect_ends, set_up, talk, try_talk};
use crate::namespace::Namespace;

/// The kind of a host's `eth0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// The end of the cable.
    Veth,
    /// A device with a hardware address of its own, on the end of the cable.
    Macvlan,
    /// A device for the frames with a VLAN tag, on the end of the cable.
    Vlan,
    /// A bond whose only port is the end of the cable.
    Bond,
}

/// An end of a cable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    /// The namespace of the interface.
    pub(crate) namespace: &'a Namespace,
    /// Its name.
    pub(crate) name: &'a str,
    /// Its number.
    pub(crate) index: u32,
}

impl DeviceKind {
    /// Returns the end of a host's cable: `eth0`, or the device below it.
    pub(crate) fn end(self, namespace: &Namespace) -> End<'_> {
        match self {
            Self::Veth => End { namespace, name: "eth0", index: ETH0 },
            Self::Macvlan | Self::Vlan | Self::Bond => {
                End { namespace, name: LOWER_NAME, index: LOWER }
            }
        }
    }

    /// Makes `eth0` on the end of the cable, still down. A macvlan device gets this hardware
    /// address, the others have that of the cable's end.
    pub(crate) fn stack(self, namespace: &Namespace, address: HardwareAddress) {
        let Some(device) = self.device(address) else { return };
        namespace.run(|| {
            talk(async |handle| {
                handle.link().add(device).execute().await?;
                // A bond takes only ports that are down, and sets them up itself.
                let lower = LinkUnspec::new_with_index(LOWER);
                let lower = if self == Self::Bond { lower.controller(ETH0) } else { lower.up() };
                handle.link().set(lower.build()).execute().await
            });
        });
    }

    /// Whether the kernel has devices of this kind.
    ///
    /// # Panics
    /// When the kernel refuses it for another reason.
    #[must_use]
    pub fn is_supported(self) -> bool {
        let Some(device) = self.device([2, 0, 0, 0, 0, 1]) else { return true };
        let namespace = Namespace::new();
        connect_ends(
            End { namespace: &namespace, name: "near", index: NEAR },
            self.end(&namespace),
        );
        let made =
            namespace.run(|| try_talk(async |handle| handle.link().add(device).execute().await));
        match made {
            Ok(()) => true,
            // `rtnl_newlink_create` of the kernel.
            Err(Error::NetlinkError(error)) if error.raw_code() == -(Errno::EOPNOTSUPP as i32) => {
                false
            }
            Err(error) => panic!("the kernel refused a device of kind {self:?}: {error}"),
        }
    }

    /// The message that makes `eth0` on [`LOWER`]; none if it is the cable's end itself.
    fn device(self, address: HardwareAddress) -> Option<LinkMessage> {
        let mut device = match self {
            Self::Veth => return None,
            Self::Macvlan => LinkMacVlan::new("eth0", LOWER, MacVlanMode::Bridge)
                .address(address.to_vec())
                .index(ETH0)
                .build(),
            Self::Vlan => LinkVlan::new("eth0", LOWER, VLAN).index(ETH0).build(),
            Self::Bond => LinkBond::new("eth0").index(ETH0).build(),
        };
        if self == Self::Bond {
            set_up(&mut device);
        }
        Some(device)
    }
}

/// The number of the device below `eth0`.
const LOWER: u32 = 3;

const LOWER_NAME: &str = "lower0";

/// The number of the other end of a cable that is made to try something.
const NEAR: u32 = 4;

const VLAN: u16 = 5;
