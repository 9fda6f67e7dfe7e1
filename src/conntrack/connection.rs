//! Translated connections of every protocol, to be counted.
//!
//! The states are those of `nf_conntrack_tcp.h` and `nf_conntrack_sctp.h`.

use std::num::NonZeroU64;

use engine::model::{Protocol, Target};
use nft::netlink::attr::Attr;

use super::abi::*;
use super::attributes::Attributes;

/// A connection whose destination was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Original source.
    pub client: Option<Target>,
    /// Original destination.
    pub sent_to: Target,
    /// Source address and port of the replies.
    pub answered_by: Target,
    /// Stage of its life.
    pub stage: Stage,
    /// Established, or for UDP more than one exchange: `IPS_ASSURED`.
    pub is_assured: bool,
    /// The kernel's identifier of the entry (`CTA_ID`).
    pub id: u32,
    /// A flowtable forwards its packets.
    pub is_offloaded: bool,
    /// Start in nanoseconds since 1970; only with `net.netfilter.nf_conntrack_timestamp`.
    pub started: Option<NonZeroU64>,
    /// Bytes of both directions; only with `net.netfilter.nf_conntrack_acct`.
    pub bytes: Option<u64>,
}

engine::named! {
    /// Stage of a connection's life.
    pub enum Stage {
        /// No reply yet, or the handshake is not complete.
        New = "new",
        /// Replied to. At least one side may still send.
        Active = "active",
        /// Closed by both sides; the entry stays until it expires.
        Ended = "ended",
    }
}

impl Connection {
    /// Decodes the payload of a message of type `kind`. Returns `None` unless it is a translated
    /// connection of the default zone: in other zones a packet is tracked a second time.
    pub fn decode(kind: u16, payload: &[u8]) -> Option<Self> {
        let Attributes { original, reply, status, protocol_info, id, zone, started, bytes, .. } =
            Attributes::decode(kind, payload)?;
        let status = status?;
        let is_of_zone = zone.is_some() || original.has_zone || reply.has_zone;
        if status & IPS_DST_NAT == 0 || is_of_zone {
            return None;
        }
        let state = protocol_info.as_ref().and_then(State::read);
        Some(Self {
            protocol: original.protocol?,
            client: original.source.target(),
            sent_to: original.destination.target()?,
            answered_by: reply.source.target()?,
            stage: state.and_then(State::stage).unwrap_or(match status & IPS_SEEN_REPLY {
                0 => Stage::New,
                _ => Stage::Active,
            }),
            is_assured: status & IPS_ASSURED != 0,
            id: id.unwrap_or(0),
            is_offloaded: status & IPS_OFFLOAD != 0,
            started,
            bytes,
        })
    }
}

/// The state of a protocol that has states.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// `enum tcp_conntrack`.
    Tcp(u8),
    /// `enum sctp_conntrack`.
    Sctp(u8),
}

impl State {
    pub(super) fn read(info: &Attr<'_>) -> Option<Self> {
        let of_protocol = info.nested().next()?.ok()?;
        let state =
            of_protocol.nested().flatten().find(|attr| attr.kind == CTA_PROTOINFO_TCP_STATE)?;
        let state = state.u8().ok()?;
        match of_protocol.kind {
            CTA_PROTOINFO_TCP => Some(Self::Tcp(state)),
            CTA_PROTOINFO_SCTP => Some(Self::Sctp(state)),
            _ => None,
        }
    }

    /// Returns whether it is that after a first packet: SYN_SENT; COOKIE_WAIT, or CLOSED where the
    /// kernel waits for INIT_ACK to leave it (seen on 6.18).
    pub(super) fn is_first(self) -> bool {
        matches!(self, Self::Tcp(1) | Self::Sctp(1 | 2))
    }

    /// Returns `None` for a state that implies no stage.
    fn stage(self) -> Option<Stage> {
        Some(match self {
            // SYN_SENT, SYN_RECV, SYN_SENT2.
            Self::Tcp(1 | 2 | 9) => Stage::New,
            // ESTABLISHED; FIN_WAIT and CLOSE_WAIT: one side has closed.
            Self::Tcp(3..=5) => Stage::Active,
            // LAST_ACK, TIME_WAIT, CLOSE.
            Self::Tcp(6..=8) => Stage::Ended,
            // COOKIE_WAIT, COOKIE_ECHOED.
            Self::Sctp(2 | 3) => Stage::New,
            // ESTABLISHED, HEARTBEAT_SENT.
            Self::Sctp(4 | 8) => Stage::Active,
            // CLOSED; SHUTDOWN_SENT, SHUTDOWN_RECD, SHUTDOWN_ACK_SENT: SCTP has no half-closed state.
            Self::Sctp(1 | 5..=7) => Stage::Ended,
            Self::Tcp(_) | Self::Sctp(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use nft::netlink::attr::AttrWriter;

    use super::super::abi::IPCTNL_MSG_CT_NEW as NEW;
    use super::*;

    /// An entry of a connection from 10.244.1.9 to 10.96.0.10:80, answered by 10.244.1.5:8080.
    fn entry(protocol: u8, status: u32, more: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        entry_in_zone(protocol, status, None, more)
    }

    /// The same; a zone applies to the direction of the replies alone.
    fn entry_in_zone(
        protocol: u8,
        status: u32,
        zone: Option<u16>,
        more: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0];
        let mut w = AttrWriter::new(&mut out);
        let ends = [([10, 244, 1, 9], 40_000), ([10, 96, 0, 10], 80), ([10, 244, 1, 5], 8080)];
        for (kind, from, to) in [(CTA_TUPLE_ORIG, 0, 1), (CTA_TUPLE_REPLY, 2, 0)] {
            w.nest(kind, |w| {
                w.nest(CTA_TUPLE_IP, |w| {
                    w.bytes(CTA_IP_V4_SRC, &ends[from].0);
                    w.bytes(CTA_IP_V4_DST, &ends[to].0);
                });
                w.nest(CTA_TUPLE_PROTO, |w| {
                    w.u8(CTA_PROTO_NUM, protocol);
                    w.be16(CTA_PROTO_SRC_PORT, ends[from].1);
                    w.be16(CTA_PROTO_DST_PORT, ends[to].1);
                });
                if let Some(zone) = zone.filter(|_| kind == CTA_TUPLE_REPLY) {
                    w.be16(CTA_TUPLE_ZONE, zone);
                }
            });
        }
        w.be32(CTA_STATUS, status);
        w.be32(CTA_ID, 7);
        more(&mut w);
        out
    }

    fn with_state(protocol: u8, info: u16, state: u8) -> Option<Stage> {
        let payload = entry(protocol, IPS_DST_NAT | IPS_SEEN_REPLY, |w| {
            w.nest(CTA_PROTOINFO, |w| w.nest(info, |w| w.u8(CTA_PROTOINFO_TCP_STATE, state)));
        });
        Connection::decode(NEW, &payload).map(|connection| connection.stage)
    }

    fn target(text: &str) -> Target {
        let socket: std::net::SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    #[test]
    fn an_entry_has_both_ends_its_number_and_its_start() {
        let payload = entry(6, IPS_DST_NAT | IPS_SEEN_REPLY | IPS_ASSURED | IPS_OFFLOAD, |w| {
            w.nest(CTA_TIMESTAMP, |w| w.be64(CTA_TIMESTAMP_START, 1_000));
            w.nest(CTA_COUNTERS_ORIG, |w| w.be64(CTA_COUNTERS_BYTES, 60));
            w.nest(CTA_COUNTERS_REPLY, |w| w.be64(CTA_COUNTERS_BYTES, 40));
        });
        let expected = Connection {
            protocol: Protocol::Tcp,
            client: Some(target("10.244.1.9:40000")),
            sent_to: target("10.96.0.10:80"),
            answered_by: target("10.244.1.5:8080"),
            stage: Stage::Active,
            is_assured: true,
            id: 7,
            is_offloaded: true,
            started: NonZeroU64::new(1_000),
            bytes: Some(100),
        };
        assert_eq!(Connection::decode(NEW, &payload), Some(expected));
    }

    #[test]
    fn entries_that_are_not_translated_connections_are_ignored() {
        assert!(Connection::decode(NEW, &entry(17, IPS_DST_NAT, |_| {})).is_some());
        assert_eq!(Connection::decode(NEW, &entry(17, IPS_SEEN_REPLY, |_| {})), None);
        assert_eq!(Connection::decode(NEW, &entry(1, IPS_DST_NAT, |_| {})), None);
        let of_zone = entry(17, IPS_DST_NAT, |w| w.be16(CTA_ZONE, 9));
        assert_eq!(Connection::decode(NEW, &of_zone), None);
        let of_zone = entry_in_zone(17, IPS_DST_NAT, Some(9), |_| {});
        assert_eq!(Connection::decode(NEW, &of_zone), None);
        assert_eq!(Connection::decode(0x102, &entry(17, IPS_DST_NAT, |_| {})), None);
    }

    #[test]
    fn the_stage_is_read_from_the_state_or_else_from_the_reply_flag() {
        let udp = |status| Connection::decode(NEW, &entry(17, status, |_| {})).unwrap().stage;
        assert_eq!(udp(IPS_DST_NAT), Stage::New);
        assert_eq!(udp(IPS_DST_NAT | IPS_SEEN_REPLY), Stage::Active);
        let tcp = [Stage::New, Stage::New, Stage::Active, Stage::Active, Stage::Active];
        let tcp = tcp.into_iter().chain([Stage::Ended; 3]).chain([Stage::New]);
        for (state, stage) in (1..).zip(tcp) {
            assert_eq!(with_state(6, CTA_PROTOINFO_TCP, state), Some(stage), "TCP {state}");
        }
        let sctp = [(1, Stage::Ended), (2, Stage::New), (4, Stage::Active), (6, Stage::Ended)];
        for (state, stage) in sctp {
            assert_eq!(with_state(132, CTA_PROTOINFO_SCTP, state), Some(stage), "SCTP {state}");
        }
        assert_eq!(with_state(6, CTA_PROTOINFO_TCP, 0), Some(Stage::Active), "without a state");
    }

    #[test]
    fn a_damaged_entry_never_panics() {
        let whole = entry(6, IPS_DST_NAT, |w| {
            w.nest(CTA_PROTOINFO, |w| {
                w.nest(CTA_PROTOINFO_TCP, |w| w.u8(CTA_PROTOINFO_TCP_STATE, 3))
            });
        });
        for length in 0..whole.len() {
            let _ = Connection::decode(NEW, &whole[..length]);
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = Connection::decode(NEW, &damaged);
            }
        }
    }
}
