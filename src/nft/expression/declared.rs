//! The expressions, one declaration for each: kernel's name, fields and attribute types.

use super::declare::{all_of, expressions};
use super::field::{Bytes, Data, Field, Reg};
use crate::abi::NFTA_EXPR_DATA;
use crate::fields::DecodeError;
use crate::netlink::attr::AttrWriter;

/// An expression that is not known here, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kernel's name of the expression.
    pub name: String,
    /// The payload of `NFTA_EXPR_DATA`; `None` without that attribute.
    pub data: Option<Vec<u8>>,
}

expressions! {
    /// Loads bytes of the packet, or writes them.
    Payload = "payload" {
        /// Source register of a write.
        from: Option<Reg> = 5,
        /// Destination register of a load.
        to: Option<Reg> = 1,
        /// `NFT_PAYLOAD_*`: the header.
        base: u32 = 2,
        /// Offset in bytes from the start of that header.
        offset: u32 = 3,
        /// Number of bytes.
        length: u32 = 4,
        /// `NFT_PAYLOAD_CSUM_*`, in writes.
        checksum_type: Option<u32> = 6,
        /// Offset of the checksum in bytes, in writes.
        checksum_offset: Option<u32> = 7,
        /// `NFT_PAYLOAD_L4CSUM_*`, in writes.
        checksum_flags: Option<u32> = 8,
    }
    /// Loads or sets metadata of the packet.
    Meta = "meta" {
        /// `NFT_META_*`.
        key: u32 = 2,
        /// Destination register of a load.
        to: Option<Reg> = 1,
        /// Source register of a change.
        from: Option<Reg> = 3,
    }
    /// Loads or sets metadata of the connection.
    Ct = "ct" {
        /// Destination register of a load.
        to: Option<Reg> = 1,
        /// Source register of a change.
        from: Option<Reg> = 4,
        /// `NFT_CT_*`.
        key: u32 = 2,
        /// `IP_CT_DIR_*`; `None` for that of the packet, or both.
        direction: Option<u8> = 3,
    }
    /// Compares a register with a value, by bytes.
    Cmp = "cmp" {
        /// Source register.
        from: Reg = 1,
        /// `NFT_CMP_*`.
        operation: u32 = 2,
        /// The value.
        value: Data = 3,
    }
    /// Compares a register with a range, by bytes.
    Range = "range" {
        /// Source register.
        from: Reg = 1,
        /// `NFT_RANGE_*`.
        operation: u32 = 2,
        /// The lowest value.
        first: Data = 3,
        /// The highest value.
        last: Data = 4,
    }
    /// Computes bits: `(from & mask) ^ xor`, a shift, or an operation of two registers.
    Bitwise = "bitwise" {
        /// Source register.
        from: Reg = 1,
        /// Destination register.
        to: Reg = 2,
        /// Number of bytes.
        length: u32 = 3,
        /// `NFT_BITWISE_*`.
        operation: Option<u32> = 6,
        /// Mask of `NFT_BITWISE_MASK_XOR`.
        mask: Option<Data> = 4,
        /// Second operand of `NFT_BITWISE_MASK_XOR`.
        xor: Option<Data> = 5,
        /// Number of bits of a shift.
        data: Option<Data> = 7,
        /// Second source register.
        second: Option<Reg> = 8,
    }
    /// Swaps the bytes of numbers between host and network byte order.
    Byteorder = "byteorder" {
        /// Source register.
        from: Reg = 1,
        /// Destination register.
        to: Reg = 2,
        /// `NFT_BYTEORDER_*`.
        operation: u32 = 3,
        /// Length of all numbers in bytes.
        length: u32 = 4,
        /// Length of one number in bytes.
        size: u32 = 5,
    }
    /// Looks up a register in a set; loads a map's data.
    Lookup = "lookup" {
        /// Name of the set or map.
        set: String = 1,
        /// First register of the key.
        from: Reg = 2,
        /// Destination register of a map's data.
        to: Option<Reg> = 3,
        /// `NFT_LOOKUP_F_*`.
        flags: u32 = 5,
    }
    /// Loads a value or a verdict.
    Immediate = "immediate" {
        /// Destination register; 0 for a verdict.
        to: Reg = 1,
        /// The value or verdict.
        data: Data = 2,
    }
    /// Counts packets.
    CounterExpression = "counter" {
        /// Bytes counted.
        bytes: u64 = 1,
        /// Packets counted.
        packets: u64 = 2,
    }
    /// Matches packets by their rate.
    Limit = "limit" {
        /// Packets or bytes in each unit of time.
        rate: u64 = 1,
        /// Unit of time in seconds.
        unit: u64 = 2,
        /// Packets or bytes allowed above the rate.
        burst: u32 = 3,
        /// `NFT_LIMIT_*`.
        kind: u32 = 4,
        /// `NFT_LIMIT_F_*`.
        flags: u32 = 5,
    }
    /// Matches by a number of bytes.
    Quota = "quota" {
        /// Limit in bytes.
        bytes: u64 = 1,
        /// Bytes used.
        consumed: u64 = 4,
        /// `NFT_QUOTA_F_*`.
        flags: u32 = 2,
    }
    /// Logs the packet.
    Log = "log" {
        /// Text before each line.
        prefix: Option<String> = 2,
        /// Level of the kernel's log.
        level: Option<u32> = 5,
        /// `NF_LOG_*`: flags of the kernel's log.
        flags: Option<u32> = 6,
        /// Group of nfnetlink_log.
        group: Option<u16> = 1,
        /// Bytes of the packet that are sent to the group.
        snaplen: Option<u32> = 3,
        /// Packets that the kernel collects before it sends them.
        queue_threshold: Option<u16> = 4,
    }
    /// Rejects the packet with an error.
    Reject = "reject" {
        /// `NFT_REJECT_*`.
        kind: u32 = 1,
        /// Code of the ICMP or ICMPv6 message.
        code: Option<u8> = 2,
    }
    /// Translates an address or port.
    Nat = "nat" {
        /// `NFT_NAT_*`.
        kind: u32 = 1,
        /// `NFPROTO_*`.
        family: u32 = 2,
        /// Register of the lowest address.
        address: Option<Reg> = 3,
        /// Register of the highest address.
        last_address: Option<Reg> = 4,
        /// Register of the lowest port.
        port: Option<Reg> = 5,
        /// Register of the highest port.
        last_port: Option<Reg> = 6,
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32> = 7,
    }
    /// Replaces the source by the address of the output interface.
    Masq = "masq" {
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32> = 1,
        /// Register of the lowest port.
        port: Option<Reg> = 2,
        /// Register of the highest port.
        last_port: Option<Reg> = 3,
    }
    /// Redirects the packet to this host.
    Redir = "redir" {
        /// Register of the lowest port.
        port: Option<Reg> = 1,
        /// Register of the highest port.
        last_port: Option<Reg> = 2,
        /// `NF_NAT_RANGE_*`.
        flags: Option<u32> = 3,
    }
    /// Adds, renews or deletes an element of a set.
    Dynset = "dynset" {
        /// First register of the key.
        key: Reg = 4,
        /// First register of the data of a map element.
        data: Option<Reg> = 5,
        /// `NFT_DYNSET_OP_*`.
        operation: u32 = 3,
        /// Name of the set or map.
        set: String = 1,
        /// Timeout of the element in milliseconds, if it differs from the set's.
        timeout: Option<u64> = 6,
        /// The expression of the element, if there is one.
        expression: Option<Box<Expression>> = 7,
        /// The expressions of the element, if there are several.
        expressions: Option<Vec<Expression>> = 10,
        /// `NFT_DYNSET_F_*`.
        flags: u32 = 9,
    }
    /// Loads results of a lookup in the routing table.
    Fib = "fib" {
        /// Destination register.
        to: Reg = 1,
        /// `NFT_FIB_RESULT_*`.
        result: u32 = 2,
        /// `NFTA_FIB_F_*`.
        flags: u32 = 3,
    }
    /// Loads properties of the packet's socket.
    Socket = "socket" {
        /// `NFT_SOCKET_*`.
        key: u32 = 1,
        /// Destination register.
        to: Reg = 2,
        /// Ancestor level of a control group.
        level: Option<u32> = 3,
    }
    /// Loads properties of the packet's route.
    Rt = "rt" {
        /// `NFT_RT_*`.
        key: u32 = 2,
        /// Destination register.
        to: Reg = 1,
    }
    /// Loads a counted or random number.
    Numgen = "numgen" {
        /// Destination register.
        to: Reg = 1,
        /// Number of possible results.
        modulus: u32 = 2,
        /// `NFT_NG_*`.
        kind: u32 = 3,
        /// The lowest result.
        offset: u32 = 4,
    }
    /// Computes a hash.
    Hash = "hash" {
        /// Source register of `jhash`.
        from: Option<Reg> = 1,
        /// Destination register.
        to: Reg = 2,
        /// Length of the input in bytes.
        length: Option<u32> = 3,
        /// Number of possible results.
        modulus: u32 = 4,
        /// Seed, unless the kernel chose it.
        seed: Option<u32> = 5,
        /// The lowest result.
        offset: Option<u32> = 6,
        /// `NFT_HASH_*`.
        kind: u32 = 7,
    }
    /// Hands the packet to a program.
    Queue = "queue" {
        /// First queue.
        number: Option<u16> = 1,
        /// Number of queues.
        total: Option<u16> = 2,
        /// `NFT_QUEUE_FLAG_*`.
        flags: u16 = 3,
        /// Register of the queue's number.
        from: Option<Reg> = 4,
    }
    /// Sends a copy of the packet to another host.
    Dup = "dup" {
        /// Register of the address.
        address: Option<Reg> = 1,
        /// Register of the interface.
        device: Option<Reg> = 2,
    }
    /// Forwards the packet through another interface.
    Fwd = "fwd" {
        /// Register of the interface.
        device: Reg = 1,
        /// Register of the address.
        address: Option<Reg> = 2,
        /// `NFPROTO_*` of the address.
        family: Option<u32> = 3,
    }
    /// Redirects the packet to a local socket without changing it.
    Tproxy = "tproxy" {
        /// `NFPROTO_*`.
        family: u32 = 1,
        /// Register of the address.
        address: Option<Reg> = 2,
        /// Register of the port.
        port: Option<Reg> = 3,
    }
    /// Answers TCP handshakes on behalf of the destination.
    Synproxy = "synproxy" {
        /// Maximum segment size announced to clients.
        mss: u16 = 1,
        /// Window scale announced to clients.
        window_scale: u8 = 2,
        /// `NF_SYNPROXY_OPT_*`.
        flags: u32 = 3,
    }
    /// Uses a named object.
    Objref = "objref" {
        /// Name of the object.
        object: Option<String> = 2,
        /// `NFT_OBJECT_*`.
        kind: Option<u32> = 1,
        /// Register of the key in a map of objects.
        key: Option<Reg> = 3,
        /// Name of the map of objects.
        map: Option<String> = 4,
    }
    /// Matches by the number of connections.
    Connlimit = "connlimit" {
        /// Number of connections.
        count: u32 = 1,
        /// `NFT_CONNLIMIT_F_*`.
        flags: Option<u32> = 2,
    }
    /// Loads, writes or removes part of an extension header or option.
    Exthdr = "exthdr" {
        /// Destination register of a load.
        to: Option<Reg> = 1,
        /// Source register of a write.
        from: Option<Reg> = 7,
        /// Type of the extension header or option.
        kind: u8 = 2,
        /// Offset in bytes from its start.
        offset: u32 = 3,
        /// Number of bytes.
        length: u32 = 4,
        /// `NFT_EXTHDR_F_*`.
        flags: Option<u32> = 5,
        /// `NFT_EXTHDR_OP_*`.
        operation: Option<u32> = 6,
    }
    /// Loads the name of the sender's operating system.
    Osf = "osf" {
        /// `NFT_OSF_*`: the treatment of the TTL.
        ttl: u8 = 2,
        /// `NFT_OSF_F_*`.
        flags: u32 = 3,
        /// Destination register.
        to: Reg = 1,
    }
    /// Loads properties of IPsec.
    Xfrm = "xfrm" {
        /// Destination register.
        to: Reg = 1,
        /// `NFT_XFRM_KEY_*`.
        key: u32 = 2,
        /// `XFRM_POLICY_IN` or `XFRM_POLICY_OUT`.
        direction: u8 = 3,
        /// Index of the transformation.
        number: u32 = 4,
    }
    /// Stores the time of the last match.
    Last = "last" {
        /// Whether a packet has matched.
        is_set: u32 = 1,
        /// Milliseconds since then.
        milliseconds: u64 = 2,
    }
    /// Runs an expression on the packet inside a tunnel.
    Inner = "inner" {
        /// Number of the description.
        number: u32 = 1,
        /// `NFT_INNER_*`: the tunnel.
        kind: u32 = 2,
        /// `NFT_INNER_*` flags.
        flags: u32 = 3,
        /// Length of the tunnel header in bytes.
        header_size: u32 = 4,
        /// The expression.
        expression: Box<Expression> = 5,
    }
    /// Loads metadata of a tunnel.
    Tunnel = "tunnel" {
        /// `NFT_TUNNEL_*`.
        key: u32 = 1,
        /// Destination register.
        to: Reg = 2,
        /// `NFT_TUNNEL_MODE_*`.
        mode: u32 = 3,
    }
    /// Adds the connection to a flowtable.
    FlowOffload = "flow_offload" {
        /// Name of the flowtable.
        flowtable: String = 1,
    }
    /// A match of iptables.
    Match = "match" {
        /// Name of the match.
        match_name: String = 1,
        /// Version of its data.
        revision: u32 = 2,
        /// Its data, a C structure.
        data: Bytes = 3,
    }
    /// A target of iptables.
    Target = "target" {
        /// Name of the target.
        target_name: String = 1,
        /// Version of its data.
        revision: u32 = 2,
        /// Its data, a C structure.
        data: Bytes = 3,
    }
}
