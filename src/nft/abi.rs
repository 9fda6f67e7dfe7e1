//! Numbers of the kernel's interface, under the kernel's names.
//!
//! They are from `<linux/netfilter/nf_tables.h>` unless noted otherwise. Register numbers,
//! attribute types and codes are part of the stable interface and never change.

// <linux/netlink.h>
pub(super) use crate::netlink::message::{
    ACK as NLM_F_ACK, CREATE as NLM_F_CREATE, REQUEST as NLM_F_REQUEST,
};
pub(super) const NLM_F_APPEND: u16 = 0x800;

// <linux/netfilter/nfnetlink.h>
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;
pub(super) const NFNL_SUBSYS_HOOK: u16 = 12;
pub(super) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(super) const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(super) const NFNL_BATCH_GENID: u16 = 1;

// <linux/netfilter/nfnetlink_hook.h>
pub(super) const NFNL_MSG_HOOK_GET: u16 = 0;
pub(super) const NFNLA_HOOK_HOOKNUM: u16 = 1;
pub(super) const NFNLA_HOOK_DEV: u16 = 3;
pub(super) const NFNLA_HOOK_CHAIN_INFO: u16 = 6;
pub(super) const NFNLA_HOOK_INFO_DESC: u16 = 1;
pub(super) const NFNLA_HOOK_INFO_TYPE: u16 = 2;
pub(super) const NFNLA_CHAIN_TABLE: u16 = 1;
pub(super) const NFNLA_CHAIN_FAMILY: u16 = 2;
pub(super) const NFNLA_CHAIN_NAME: u16 = 3;
pub(super) const NFNL_HOOK_TYPE_NFTABLES: u32 = 1;

// <linux/netfilter.h>
pub(super) const NFPROTO_UNSPEC: u8 = 0;
pub(super) const NFPROTO_IPV6: u8 = 10;
pub(super) const NF_DROP: u32 = 0;
pub(super) const NF_ACCEPT: u32 = 1;

// <linux/netfilter/nf_nat.h>
pub(super) const NF_NAT_RANGE_MAP_IPS: u32 = 1;
pub(super) const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2;

// <linux/netfilter/nf_conntrack_common.h>: bits `1 << (IP_CT_ESTABLISHED + 1)` and
// `1 << (IP_CT_NEW + 1)` of the state, `IPS_DST_NAT`, `IP_CT_DIR_ORIGINAL`.
pub(super) const IP_CT_DIR_ORIGINAL: u8 = 0;

// enum nf_tables_msg_types
pub(super) const NFT_MSG_NEWTABLE: u16 = 0;
pub(super) const NFT_MSG_DELTABLE: u16 = 2;
pub(super) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(super) const NFT_MSG_DELCHAIN: u16 = 5;
pub(super) const NFT_MSG_NEWRULE: u16 = 6;
pub(super) const NFT_MSG_DELRULE: u16 = 8;
pub(super) const NFT_MSG_NEWSET: u16 = 9;
pub(super) const NFT_MSG_DELSET: u16 = 11;
pub(super) const NFT_MSG_NEWSETELEM: u16 = 12;
pub(super) const NFT_MSG_DELSETELEM: u16 = 14;
pub(super) const NFT_MSG_NEWGEN: u16 = 15;
pub(super) const NFT_MSG_TRACE: u16 = 17;
pub(super) const NFT_MSG_NEWOBJ: u16 = 18;
pub(super) const NFT_MSG_DELOBJ: u16 = 20;
pub(super) const NFT_MSG_NEWFLOWTABLE: u16 = 22;
pub(super) const NFT_MSG_DELFLOWTABLE: u16 = 24;
// Since Linux 6.3.
pub(super) const NFT_MSG_DESTROYTABLE: u16 = 26;
pub(super) const NFT_MSG_DESTROYCHAIN: u16 = 27;
pub(super) const NFT_MSG_DESTROYRULE: u16 = 28;
pub(super) const NFT_MSG_DESTROYSET: u16 = 29;
pub(super) const NFT_MSG_DESTROYSETELEM: u16 = 30;
pub(super) const NFT_MSG_DESTROYOBJ: u16 = 31;
pub(super) const NFT_MSG_DESTROYFLOWTABLE: u16 = 32;

// enum nft_registers
pub(super) const NFT_REG_VERDICT: u32 = 0;
pub(super) const NFT_REG_1: u32 = 1;
pub(super) const NFT_REG_4: u32 = 4;
pub(super) const NFT_REG32_00: u32 = 8;
pub(super) const NFT_REG32_15: u32 = 23;

// enum nft_verdicts
pub(super) const NFT_JUMP: i32 = -3;
pub(super) const NFT_GOTO: i32 = -4;
pub(super) const NFT_RETURN: i32 = -5;

// enum nft_list_attributes
pub(super) const NFTA_LIST_ELEM: u16 = 1;

// enum nft_hook_attributes
pub(super) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(super) const NFTA_HOOK_PRIORITY: u16 = 2;
pub(super) const NFTA_HOOK_DEVS: u16 = 4;

// enum nft_table_attributes
pub(super) const NFTA_TABLE_NAME: u16 = 1;
pub(super) const NFTA_TABLE_FLAGS: u16 = 2;
pub(super) const NFTA_TABLE_USERDATA: u16 = 6;
pub(super) const NFTA_TABLE_OWNER: u16 = 7;

// enum nft_chain_attributes
pub(super) const NFTA_CHAIN_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
pub(super) const NFTA_CHAIN_HOOK: u16 = 4;
pub(super) const NFTA_CHAIN_POLICY: u16 = 5;
pub(super) const NFTA_CHAIN_TYPE: u16 = 7;
pub(super) const NFTA_CHAIN_FLAGS: u16 = 10;
pub(super) const NFTA_CHAIN_USERDATA: u16 = 12;

// enum nft_rule_attributes
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_HANDLE: u16 = 3;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(super) const NFTA_RULE_POSITION: u16 = 6;
pub(super) const NFTA_RULE_USERDATA: u16 = 7;

// enum nft_flowtable_attributes
pub(super) const NFTA_FLOWTABLE_TABLE: u16 = 1;
pub(super) const NFTA_FLOWTABLE_NAME: u16 = 2;
pub(super) const NFTA_FLOWTABLE_HOOK: u16 = 3;
pub(super) const NFTA_FLOWTABLE_FLAGS: u16 = 7;

// enum nft_flowtable_hook_attributes
pub(super) const NFTA_FLOWTABLE_HOOK_NUM: u16 = 1;
pub(super) const NFTA_FLOWTABLE_HOOK_PRIORITY: u16 = 2;
pub(super) const NFTA_FLOWTABLE_HOOK_DEVS: u16 = 3;

// enum nft_devices_attributes; PREFIX since Linux 6.18
pub(super) const NFTA_DEVICE_NAME: u16 = 1;
pub(super) const NFTA_DEVICE_PREFIX: u16 = 2;

// enum nft_flowtable_flags
pub(super) const NFT_FLOWTABLE_COUNTER: u32 = 0x2;

// enum nft_set_desc_attributes
pub(super) const NFTA_SET_DESC_SIZE: u16 = 1;
pub(super) const NFTA_SET_DESC_CONCAT: u16 = 2;

// enum nft_set_field_attributes
pub(super) const NFTA_SET_FIELD_LEN: u16 = 1;

// enum nft_set_attributes
pub(super) const NFTA_SET_TABLE: u16 = 1;
pub(super) const NFTA_SET_NAME: u16 = 2;
pub(super) const NFTA_SET_FLAGS: u16 = 3;
pub(super) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(super) const NFTA_SET_KEY_LEN: u16 = 5;
pub(super) const NFTA_SET_DATA_TYPE: u16 = 6;
pub(super) const NFTA_SET_DATA_LEN: u16 = 7;
pub(super) const NFTA_SET_POLICY: u16 = 8;
pub(super) const NFTA_SET_DESC: u16 = 9;
pub(super) const NFTA_SET_ID: u16 = 10;
pub(super) const NFTA_SET_TIMEOUT: u16 = 11;
pub(super) const NFTA_SET_GC_INTERVAL: u16 = 12;
pub(super) const NFTA_SET_USERDATA: u16 = 13;
pub(super) const NFTA_SET_OBJ_TYPE: u16 = 15;
pub(super) const NFTA_SET_EXPR: u16 = 17;
pub(super) const NFTA_SET_EXPRESSIONS: u16 = 18;
pub(super) const NFTA_SET_COUNT: u16 = 20;

// enum nft_set_elem_attributes
pub(super) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(super) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(super) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(super) const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
pub(super) const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
pub(super) const NFTA_SET_ELEM_USERDATA: u16 = 6;
pub(super) const NFTA_SET_ELEM_EXPR: u16 = 7;
pub(super) const NFTA_SET_ELEM_OBJREF: u16 = 9;
pub(super) const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub(super) const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;

// enum nft_set_elem_list_attributes
pub(super) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(super) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;

// enum nft_data_attributes
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;

// enum nft_verdict_attributes
pub(super) const NFTA_VERDICT_CODE: u16 = 1;
pub(super) const NFTA_VERDICT_CHAIN: u16 = 2;

// enum nft_expr_attributes
pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;

// enum nft_trace_attributes
pub(super) const NFTA_TRACE_TABLE: u16 = 1;
pub(super) const NFTA_TRACE_CHAIN: u16 = 2;
pub(super) const NFTA_TRACE_RULE_HANDLE: u16 = 3;
pub(super) const NFTA_TRACE_TYPE: u16 = 4;
pub(super) const NFTA_TRACE_VERDICT: u16 = 5;
pub(super) const NFTA_TRACE_ID: u16 = 6;
pub(super) const NFTA_TRACE_POLICY: u16 = 16;

// enum nft_trace_types
pub(super) const NFT_TRACETYPE_POLICY: u32 = 1;
pub(super) const NFT_TRACETYPE_RETURN: u32 = 2;
pub(super) const NFT_TRACETYPE_RULE: u32 = 3;

// enum nft_object_attributes
pub(super) const NFTA_OBJ_TABLE: u16 = 1;
pub(super) const NFTA_OBJ_NAME: u16 = 2;
pub(super) const NFTA_OBJ_TYPE: u16 = 3;
pub(super) const NFTA_OBJ_DATA: u16 = 4;
pub(super) const NFTA_OBJ_USERDATA: u16 = 8;

// enum nft_chain_flags
pub(super) const NFT_CHAIN_BASE: u32 = 0x1;
pub(super) const NFT_CHAIN_BINDING: u32 = 0x4;

// enum nft_table_flags; PERSIST since Linux 6.9
pub(super) const NFT_TABLE_F_OWNER: u32 = 0x2;
pub(super) const NFT_TABLE_F_PERSIST: u32 = 0x4;

// enum nft_byteorder_ops
pub(super) const NFT_BYTEORDER_HTON: u32 = 1;

// enum nft_set_elem_flags
pub(super) const NFT_SET_ELEM_INTERVAL_END: u32 = 0x1;
pub(super) const NFT_SET_ELEM_CATCHALL: u32 = 0x2;

// enum nft_reject_types
pub(super) const NFT_REJECT_ICMP_UNREACH: u32 = 0;
pub(super) const NFT_REJECT_TCP_RST: u32 = 1;

// enum nft_nat_types
pub(super) const NFT_NAT_DNAT: u32 = 1;

// enum nft_ng_types
pub(super) const NFT_NG_INCREMENTAL: u32 = 0;
pub(super) const NFT_NG_RANDOM: u32 = 1;

// enum nft_counter_attributes
pub(super) const NFTA_COUNTER_BYTES: u16 = 1;
pub(super) const NFTA_COUNTER_PACKETS: u16 = 2;

// enum nft_gen_attributes
pub(super) const NFTA_GEN_ID: u16 = 1;
pub(super) const NFTA_GEN_PROC_NAME: u16 = 3;

/// `NETLINK_NETFILTER` of `<linux/netlink.h>`.
pub(super) const NETLINK_NETFILTER: isize = 12;
/// `NFNLGRP_NFTABLES` of `<linux/netfilter/nfnetlink.h>`: notifications of commits.
pub(super) const NFNLGRP_NFTABLES: u32 = 7;
/// `NFNLGRP_NFTRACE` of `<linux/netfilter/nfnetlink.h>`: trace events.
pub(super) const NFNLGRP_NFTRACE: u32 = 9;
