//! The kind of a network device, and what a bridge hands to netfilter: `IFLA_LINKINFO` of
//! `<linux/if_link.h>`.

use std::io;

use nix::libc::{
    IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_INFO_SLAVE_KIND, IFLA_LINKINFO, RTM_GETLINK,
    RTM_NEWLINK,
};

use crate::rtnetlink::{IFINFOMSG_LENGTH, Rtnetlink};
use nft::netlink::attr::Attrs;
use nft::netlink::message;

/// What kind of device one is, with the names that the kernel's drivers register
/// (`struct rtnl_link_ops`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkKind {
    /// `bridge`, `bond`, `vlan`, `veth`, and so on; `None` for most hardware.
    pub kind: Option<String>,
    /// Kind of the device that it is a port of: `bridge`, `bond`, `vrf`, and so on.
    pub port_of: Option<String>,
    /// A bridge that hands its IPv4 packets to the chains of iptables and nftables, also if the
    /// sysctl `bridge-nf-call-iptables` is 0.
    pub calls_iptables: bool,
    /// The same for IPv6.
    pub calls_ip6tables: bool,
}

/// Returns the kind of a device of the calling thread's network namespace.
///
/// # Errors
/// ENODEV without such a device; the socket failed.
pub fn link_kind(name: &str) -> io::Result<LinkKind> {
    let mut kind = LinkKind::default();
    Rtnetlink::open()?.request(
        (RTM_GETLINK, message::ACK),
        &[0; IFINFOMSG_LENGTH],
        |w| w.str(IFLA_IFNAME, name),
        |message| {
            if message.kind == RTM_NEWLINK {
                kind = decode(message.payload);
            }
        },
    )?;
    Ok(kind)
}

/// Decodes the attributes after `struct ifinfomsg`. Ignores damaged ones.
fn decode(payload: &[u8]) -> LinkKind {
    let attributes = Attrs::new(payload.get(IFINFOMSG_LENGTH..).unwrap_or_default());
    let mut link = LinkKind::default();
    let info = attributes.flatten().filter(|attr| attr.kind == IFLA_LINKINFO);
    for attr in info.flat_map(|info| info.nested().flatten()) {
        let text = || attr.str().ok().map(str::to_owned);
        match attr.kind {
            IFLA_INFO_KIND => link.kind = text(),
            IFLA_INFO_SLAVE_KIND => link.port_of = text(),
            // Other kinds have other attributes of the same numbers. The kind is before them
            // (`rtnl_link_fill`).
            IFLA_INFO_DATA if link.kind.as_deref() == Some(BRIDGE) => {
                for option in attr.nested().flatten() {
                    let is_set = option.u8().is_ok_and(|value| value != 0);
                    match option.kind {
                        IFLA_BR_NF_CALL_IPTABLES => link.calls_iptables = is_set,
                        IFLA_BR_NF_CALL_IP6TABLES => link.calls_ip6tables = is_set,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    link
}

const BRIDGE: &str = "bridge";
// <linux/if_link.h>
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use nft::netlink::attr::AttrWriter;

    fn payload(kind: &str, calls: [u8; 2]) -> Vec<u8> {
        let mut payload = vec![0; IFINFOMSG_LENGTH];
        AttrWriter::new(&mut payload).nest(IFLA_LINKINFO, |w| {
            w.str(IFLA_INFO_KIND, kind);
            w.nest(IFLA_INFO_DATA, |w| {
                w.u8(IFLA_BR_NF_CALL_IPTABLES, calls[0]);
                w.u8(IFLA_BR_NF_CALL_IP6TABLES, calls[1]);
            });
            w.str(IFLA_INFO_SLAVE_KIND, "bond");
        });
        payload
    }

    #[test]
    fn a_device_has_its_kind_and_that_of_its_master() {
        let link = decode(&payload("vlan", [1, 1]));
        let expected = LinkKind {
            kind: Some("vlan".into()),
            port_of: Some("bond".into()),
            ..LinkKind::default()
        };
        assert_eq!(link, expected, "a VLAN has other options of these numbers");
    }

    #[test]
    fn a_bridge_hands_each_family_to_netfilter_or_not() {
        for (calls, expected) in
            [([0, 0], (false, false)), ([1, 0], (true, false)), ([0, 1], (false, true))]
        {
            let link = decode(&payload(BRIDGE, calls));
            assert_eq!((link.calls_iptables, link.calls_ip6tables), expected);
        }
    }

    #[test]
    fn a_truncated_message_never_panics() {
        let whole = payload(BRIDGE, [1, 1]);
        for length in 0..whole.len() {
            let _ = decode(&whole[..length]);
        }
    }

    #[test]
    fn a_device_without_a_kind_is_read_and_an_absent_one_is_an_error() {
        assert_eq!(link_kind("lo").unwrap(), LinkKind::default());
        let absent = link_kind("no-such-device").unwrap_err();
        assert_eq!(absent.raw_os_error(), Some(Errno::ENODEV as i32));
    }
}
