//! Trace messages of the kernel for packets with `meta nftrace set 1`.

use super::abi::*;
use super::fields::{DecodeError, Fields, known};
use crate::family::TableFamily;
use crate::netlink::attr::Attrs;
use crate::notification::split;
use crate::table::TableRef;
use crate::verdict::Verdict;

/// A step of a packet through the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Trace id of the packet.
    pub id: u32,
    /// The table.
    pub table: TableRef,
    /// Name of the chain.
    pub chain: String,
    /// The event.
    pub kind: TraceKind,
}

/// The event at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A rule matched.
    Rule {
        /// The handle of the rule.
        handle: u64,
        /// The verdict; `None` if the packet continues with the next rule, or for an unknown
        /// verdict.
        verdict: Option<Verdict>,
    },
    /// The rules of a base chain ended, or a rule returned.
    Return,
    /// The policy of a base chain was applied.
    Policy {
        /// The policy is `drop`.
        drops: bool,
    },
}

impl TraceEvent {
    /// Reads a message of the group `NFNLGRP_NFTRACE` from its type and its payload after the
    /// header. `None` for another message, or for an unknown step.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(kind: u16, payload: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((NFT_MSG_TRACE, family, attributes)) = split(kind, payload) else {
            return Ok(None);
        };
        // The family of the table; the attribute has that of the packet.
        let Some(family) = TableFamily::of(family) else { return Ok(None) };
        let fields = Fields::read(Attrs::new(attributes))?;
        let kind = match fields.be32(NFTA_TRACE_TYPE)? {
            // The kernel reports the end of a chain as a rule without a handle (seen on Linux
            // 6.18).
            NFT_TRACETYPE_RULE => match fields.be64(NFTA_TRACE_RULE_HANDLE)? {
                Some(handle) if handle != 0 => {
                    TraceKind::Rule { handle, verdict: decode_verdict(&fields)? }
                }
                Some(_) | None => TraceKind::Return,
            },
            NFT_TRACETYPE_RETURN => TraceKind::Return,
            NFT_TRACETYPE_POLICY => TraceKind::Policy {
                drops: fields.optional_be32(NFTA_TRACE_POLICY)? == Some(NF_DROP),
            },
            _ => return Ok(None),
        };
        Ok(Some(Self {
            id: fields.be32(NFTA_TRACE_ID)?,
            table: TableRef::new(family, fields.str(NFTA_TRACE_TABLE)?.to_owned()),
            chain: fields.str(NFTA_TRACE_CHAIN)?.to_owned(),
            kind,
        }))
    }
}

/// Decodes the verdict. The attribute itself is the nest.
fn decode_verdict(fields: &Fields<'_>) -> Result<Option<Verdict>, DecodeError> {
    let Some(attr) = fields.find(NFTA_TRACE_VERDICT) else { return Ok(None) };
    known(Verdict::decode_nest(&Fields::read(attr.nested())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attr::AttrWriter;

    const KIND: u16 = 10 << 8 | 17;

    /// Returns a message about the chain `pick` of `ip kube-proxy`.
    fn message(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        let mut payload = vec![2, 0, 0, 0];
        let mut w = AttrWriter::new(&mut payload);
        w.str(NFTA_TRACE_TABLE, "kube-proxy");
        w.str(NFTA_TRACE_CHAIN, "pick");
        w.be32(NFTA_TRACE_ID, 7);
        fill(&mut w);
        payload
    }

    fn kind_of(payload: &[u8]) -> Option<TraceKind> {
        TraceEvent::decode(KIND, payload).unwrap().map(|event| event.kind)
    }

    #[test]
    fn a_step_names_its_rule_and_verdict() {
        let payload = message(|w| {
            w.be32(NFTA_TRACE_TYPE, NFT_TRACETYPE_RULE);
            w.be64(NFTA_TRACE_RULE_HANDLE, 12);
            w.nest(NFTA_TRACE_VERDICT, |w| w.be32(NFTA_VERDICT_CODE, NF_DROP));
        });
        let verdict = Some(Verdict::Drop);
        assert_eq!(kind_of(&payload), Some(TraceKind::Rule { handle: 12, verdict }));
        let event = TraceEvent::decode(KIND, &payload).unwrap().unwrap();
        assert_eq!((event.id, event.table), (7, TableRef::new(TableFamily::Ip, "kube-proxy")));
        assert_eq!(TraceEvent::decode(KIND - 1, &payload), Ok(None));
    }

    #[test]
    fn the_end_of_a_chain_is_no_rule() {
        let end = message(|w| w.be32(NFTA_TRACE_TYPE, NFT_TRACETYPE_RULE));
        assert_eq!(kind_of(&end), Some(TraceKind::Return));
        let policy = message(|w| {
            w.be32(NFTA_TRACE_TYPE, NFT_TRACETYPE_POLICY);
            w.be32(NFTA_TRACE_POLICY, NF_DROP);
        });
        assert_eq!(kind_of(&policy), Some(TraceKind::Policy { drops: true }));
        assert!(TraceEvent::decode(KIND, &end[..6]).is_err());
        assert_eq!(TraceEvent::decode(KIND, &[2]), Ok(None));
    }
}
