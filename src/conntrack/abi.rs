//! Numbers of `<linux/netfilter/nfnetlink_conntrack.h>` and `nf_conntrack_common.h`.
//!
//! The bits of `CTA_FILTER_ORIG_FLAGS` and `CTA_FILTER_REPLY_FLAGS` are defined only in the kernel's
//! `net/netfilter/nf_internals.h`.

/// `NFNL_SUBSYS_CTNETLINK` with a message of `enum cntl_msg_types`.
pub(super) const IPCTNL_MSG_CT_NEW: u16 = 0x100;
pub(super) const IPCTNL_MSG_CT_GET: u16 = 0x101;
pub(super) const IPCTNL_MSG_CT_DELETE: u16 = 0x102;
pub(super) const IPCTNL_MSG_CT_GET_STATS: u16 = 0x105;

/// Length of `struct nfgenmsg`.
pub(super) const NFGENMSG_LENGTH: usize = 4;

pub(super) const CTA_TUPLE_ORIG: u16 = 1;
pub(super) const CTA_TUPLE_REPLY: u16 = 2;
pub(super) const CTA_STATUS: u16 = 3;
pub(super) const CTA_PROTOINFO: u16 = 4;
pub(super) const CTA_TIMEOUT: u16 = 7;
pub(super) const CTA_COUNTERS_ORIG: u16 = 9;
pub(super) const CTA_COUNTERS_REPLY: u16 = 10;
pub(super) const CTA_ID: u16 = 12;
pub(super) const CTA_ZONE: u16 = 18;
pub(super) const CTA_TIMESTAMP: u16 = 20;
pub(super) const CTA_FILTER: u16 = 25;
pub(super) const CTA_STATUS_MASK: u16 = 26;

pub(super) const CTA_TUPLE_IP: u16 = 1;
pub(super) const CTA_TUPLE_PROTO: u16 = 2;
pub(super) const CTA_TUPLE_ZONE: u16 = 3;
pub(super) const CTA_IP_V4_SRC: u16 = 1;
pub(super) const CTA_IP_V4_DST: u16 = 2;
pub(super) const CTA_IP_V6_SRC: u16 = 3;
pub(super) const CTA_IP_V6_DST: u16 = 4;
pub(super) const CTA_PROTO_NUM: u16 = 1;
pub(super) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(super) const CTA_PROTO_DST_PORT: u16 = 3;

pub(super) const CTA_PROTOINFO_TCP: u16 = 1;
pub(super) const CTA_PROTOINFO_SCTP: u16 = 3;
/// The same number as `CTA_PROTOINFO_SCTP_STATE`.
pub(super) const CTA_PROTOINFO_TCP_STATE: u16 = 1;
pub(super) const CTA_COUNTERS_BYTES: u16 = 2;
pub(super) const CTA_TIMESTAMP_START: u16 = 1;

pub(super) const IPS_SEEN_REPLY: u32 = 1 << 1;
pub(super) const IPS_ASSURED: u32 = 1 << 2;
pub(super) const IPS_DST_NAT: u32 = 1 << 5;
pub(super) const IPS_OFFLOAD: u32 = 1 << 14;

pub(super) const CTA_FILTER_ORIG_FLAGS: u16 = 1;
pub(super) const CTA_FILTER_REPLY_FLAGS: u16 = 2;
pub(super) const CTA_FILTER_IP_SRC: u32 = 1 << 0;
pub(super) const CTA_FILTER_IP_DST: u32 = 1 << 1;
pub(super) const CTA_FILTER_PROTO_NUM: u32 = 1 << 3;
pub(super) const CTA_FILTER_PROTO_SRC_PORT: u32 = 1 << 4;
pub(super) const CTA_FILTER_PROTO_DST_PORT: u32 = 1 << 5;
