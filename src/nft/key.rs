//! Numbers in expressions, for programs that write or interpret rules.
//!
//! They are from `<linux/netfilter/nf_tables.h>` unless noted otherwise.
#![expect(missing_docs, reason = "the kernel's names say it")]

// enum nft_payload_bases
pub const PAYLOAD_LINK: u32 = 0;
pub const PAYLOAD_NETWORK: u32 = 1;
pub const PAYLOAD_TRANSPORT: u32 = 2;

// enum nft_meta_keys
pub const META_PROTOCOL: u32 = 1;
pub const META_PRIORITY: u32 = 2;
pub const META_MARK: u32 = 3;
pub const META_IIF: u32 = 4;
pub const META_OIF: u32 = 5;
pub const META_IIFNAME: u32 = 6;
pub const META_OIFNAME: u32 = 7;
pub const META_IIFTYPE: u32 = 8;
pub const META_NFTRACE: u32 = 12;
pub const META_NFPROTO: u32 = 15;
pub const META_L4PROTO: u32 = 16;
pub const META_PKTTYPE: u32 = 19;
pub const META_TIME_NS: u32 = 30;

// enum nft_ct_keys
pub const CT_STATE: u32 = 0;
pub const CT_DIRECTION: u32 = 1;
pub const CT_STATUS: u32 = 2;
pub const CT_MARK: u32 = 3;
pub const CT_PROTO_DST: u32 = 12;
pub const CT_PACKETS: u32 = 14;
pub const CT_BYTES: u32 = 15;
pub const CT_DST_IP: u32 = 20;
pub const CT_DST_IP6: u32 = 22;

/// `NF_CT_STATE_INVALID_BIT` of `<linux/netfilter/nf_conntrack_common.h>`.
pub const CT_STATE_INVALID: u32 = 0x1;
/// Bit `1 << (IP_CT_ESTABLISHED + 1)`.
pub const CT_STATE_ESTABLISHED: u32 = 0x2;
/// Bit `1 << (IP_CT_NEW + 1)`.
pub const CT_STATE_NEW: u32 = 0x8;
/// `NF_CT_STATE_UNTRACKED_BIT`.
pub const CT_STATE_UNTRACKED: u32 = 0x40;
/// `IPS_CONFIRMED`.
pub const CT_STATUS_CONFIRMED: u32 = 0x8;
/// `IPS_SRC_NAT`.
pub const CT_STATUS_SNAT: u32 = 0x10;
/// `IPS_DST_NAT`.
pub const CT_STATUS_DNAT: u32 = 0x20;

// enum nft_cmp_ops
pub const CMP_EQUAL: u32 = 0;
pub const CMP_NOT_EQUAL: u32 = 1;
pub const CMP_LESS: u32 = 2;
pub const CMP_LESS_OR_EQUAL: u32 = 3;
pub const CMP_GREATER: u32 = 4;
pub const CMP_GREATER_OR_EQUAL: u32 = 5;

/// `NFT_RANGE_NEQ`.
pub const RANGE_NOT_EQUAL: u32 = 1;
/// `NFT_BITWISE_MASK_XOR`.
pub const BITWISE_MASK_XOR: u32 = 0;
/// `NFT_LOOKUP_F_INV`.
pub const LOOKUP_INVERTED: u32 = 1;
/// `NFT_HASH_JENKINS`.
pub const HASH_JENKINS: u32 = 0;
/// `NFT_NAT_SNAT`.
pub const NAT_SOURCE: u32 = 0;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` of `<linux/netfilter/nf_nat.h>`.
pub const NAT_FULLY_RANDOM: u32 = 0x10;

// enum nft_dynset_ops, enum nft_dynset_flags
pub const DYNSET_ADD: u32 = 0;
pub const DYNSET_UPDATE: u32 = 1;
pub const DYNSET_DELETE: u32 = 2;
pub const DYNSET_INVERTED: u32 = 1;

// <linux/icmp.h>, <linux/icmpv6.h>
pub const ICMP_PORT_UNREACHABLE: u8 = 3;
pub const ICMPV6_PORT_UNREACHABLE: u8 = 4;

// enum nft_fib_flags, enum nft_fib_result
pub const FIB_SADDR: u32 = 1;
pub const FIB_DADDR: u32 = 2;
pub const FIB_OTHER_FLAGS: u32 = !3;
pub const FIB_RESULT_TYPE: u32 = 3;

// <linux/rtnetlink.h>
pub const ROUTE_UNICAST: u32 = 1;
pub const ROUTE_LOCAL: u32 = 2;
pub const ROUTE_BROADCAST: u32 = 3;
pub const ROUTE_MULTICAST: u32 = 5;

// <linux/netfilter.h>
pub const NFPROTO_INET: u8 = 1;
pub const NFPROTO_ARP: u8 = 3;
pub const NFPROTO_NETDEV: u8 = 5;
pub const NFPROTO_BRIDGE: u8 = 7;

// <linux/if_arp.h>, <linux/if_packet.h>
pub const ARPHRD_ETHER: u16 = 1;
pub const PACKET_HOST: u8 = 0;

// <linux/if_ether.h>
pub const ETH_P_IP: u16 = 0x0800;
pub const ETH_P_IPV6: u16 = 0x86dd;

/// Length of an interface name in bytes with its NUL: `IFNAMSIZ`.
pub const INTERFACE_NAME: usize = 16;
