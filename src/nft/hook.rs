//! What the kernel calls at a hook, in its order: `<linux/netfilter/nfnetlink_hook.h>`, as `nft list
//! hooks` shows it. Of chains with one priority, the one registered last comes first.

use crate::abi::*;
use crate::family::TableFamily;
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{AttrWriter, Attrs};
use crate::table::TableRef;
use crate::text::Name;

/// A hook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hook {
    /// Family of the packets, or [`TableFamily::Netdev`]. Both IPv4 and IPv6 have chains of inet.
    pub family: TableFamily,
    /// [`crate::HookPoint`], or the number of a hook of devices.
    pub number: u32,
    /// The device of a hook of devices.
    pub device: Option<Name>,
}

impl Hook {
    pub(crate) fn write(&self, w: &mut AttrWriter<'_>) {
        w.be32(NFNLA_HOOK_HOOKNUM, self.number);
        if let Some(device) = &self.device {
            w.str(NFNLA_HOOK_DEV, device);
        }
    }
}

/// Returns the base chain of one message; `None` for what is no chain of nftables, such as a chain of
/// iptables-legacy, a flowtable, a BPF program, or all chains of type nat together: kernels list these
/// singly since commit b010e2a4a9ac of July 2026.
pub(crate) fn called_chain(attributes: &[u8]) -> Result<Option<(TableRef, Name)>, DecodeError> {
    let called = Fields::read(Attrs::new(attributes))?;
    let Some(info) = called.find(NFNLA_HOOK_CHAIN_INFO) else { return Ok(None) };
    let info = Fields::read(info.nested())?;
    if info.be32(NFNLA_HOOK_INFO_TYPE)? != NFNL_HOOK_TYPE_NFTABLES {
        return Ok(None);
    }
    let chain = info.nest(NFNLA_HOOK_INFO_DESC)?;
    let family = chain.need(NFNLA_CHAIN_FAMILY)?.payload.first().copied();
    let table = chain.str(NFNLA_CHAIN_TABLE)?.to_owned();
    let name = chain.str(NFNLA_CHAIN_NAME)?.to_owned();
    Ok(family.and_then(TableFamily::of).map(|family| (TableRef::new(family, table), name.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the attributes of a message about a chain, as `nfnl_hook_dump_one` writes them.
    fn message(kind: u32, family: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = AttrWriter::listed(&mut out);
        w.str(5, "nf_tables");
        w.str(4, "nft_do_chain_inet");
        w.be32(NFNLA_HOOK_HOOKNUM, 2);
        w.be32(2, 0);
        w.nest(NFNLA_HOOK_CHAIN_INFO, |w| {
            w.be32(NFNLA_HOOK_INFO_TYPE, kind);
            w.nest(NFNLA_HOOK_INFO_DESC, |w| {
                w.str(NFNLA_CHAIN_TABLE, "firewalld");
                w.str(NFNLA_CHAIN_NAME, "filter_FORWARD");
                w.bytes(NFNLA_CHAIN_FAMILY, family);
            });
        });
        out
    }

    #[test]
    fn a_message_of_the_kernel_is_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        // Linux 7.2: table inet two { chain f { type filter hook prerouting priority 7; } }
        let attributes = [
            b"\x0e\0\x05\0nf_tables\0\0\0\x16\0\x04\0nft_do_chain_inet\0\0\0".as_slice(),
            b"\x08\0\x01\0\0\0\0\0\x08\0\x02\0\0\0\0\x07\x28\0\x06\x80\x08\0\x02\0\0\0\0\x01",
            b"\x1c\0\x01\x80\x08\0\x01\0two\0\x06\0\x03\0f\0\0\0\x05\0\x02\0\x01\0\0\0",
        ];
        let expected = (TableRef::new(TableFamily::Inet, "two"), "f".into());
        assert_eq!(called_chain(&attributes.concat()), Ok(Some(expected)));
        // The same of `nf_nat_ipv4_pre_routing`, which calls all chains of type nat.
        let of_nat = [
            b"\x0b\0\x05\0nf_nat\0\0\x1c\0\x04\0nf_nat_ipv4_pre_routing\0".as_slice(),
            b"\x08\0\x01\0\0\0\0\0\x08\0\x02\0\xff\xff\xff\x9c",
        ];
        assert_eq!(called_chain(&of_nat.concat()), Ok(None));
    }

    #[test]
    fn a_base_chain_has_its_table_whose_family_is_not_that_of_the_hook() {
        let expected = (TableRef::new(TableFamily::Inet, "firewalld"), "filter_FORWARD".into());
        assert_eq!(called_chain(&message(1, &[1])), Ok(Some(expected)));
    }

    #[test]
    fn what_is_no_chain_or_of_no_known_family_is_none() {
        let of_conntrack = {
            let mut out = Vec::new();
            AttrWriter::new(&mut out).str(4, "ipv4_conntrack_in");
            out
        };
        let bpf = message(2, &[1]);
        for attributes in [of_conntrack, bpf, message(1, &[99]), message(1, &[])] {
            assert_eq!(called_chain(&attributes), Ok(None));
        }
    }

    #[test]
    fn a_damaged_message_is_an_error_and_never_panics() {
        let whole = message(1, &[1]);
        for length in 0..whole.len() {
            let _ = called_chain(&whole[..length]);
        }
        assert!(called_chain(&whole[..30]).is_err());
    }
}
