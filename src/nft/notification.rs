//! Notifications of a commit: each object, then the new generation.

use super::abi::*;
use super::fields::Fields;
use crate::netlink::attr::Attrs;

/// A message of the group `NFNLGRP_NFTABLES`. The messages of one commit are consecutive
/// (`nf_tables_commit_notify`); [`Notification::Generation`] is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification<'a> {
    /// A rule or elements were added; with their attributes.
    Added(&'a [u8]),
    /// Another object, or a deletion.
    Other,
    /// The commit is complete.
    Generation {
        /// Name of the thread that committed (`NFTA_GEN_PROC_NAME`), if it is readable.
        program: Option<&'a str>,
    },
}

impl<'a> Notification<'a> {
    /// Reads a message from its type and its payload after the header. Unknown messages are
    /// [`Notification::Other`].
    pub fn decode(kind: u16, payload: &'a [u8]) -> Self {
        match split(kind, payload) {
            Some((NFT_MSG_NEWRULE | NFT_MSG_NEWSETELEM, _, attributes)) => Self::Added(attributes),
            Some((NFT_MSG_NEWGEN, _, attributes)) => {
                let fields = Fields::read(Attrs::new(attributes));
                let program = fields.ok().and_then(|fields| fields.str(NFTA_GEN_PROC_NAME).ok());
                Self::Generation { program }
            }
            Some(_) | None => Self::Other,
        }
    }
}

/// Length of `struct nfgenmsg`, whose first byte is the family.
pub(super) const NFGENMSG_LENGTH: usize = 4;

/// Returns `NFT_MSG_*`, the family and the attributes of a message of nftables; `None` for others.
pub(super) fn split(kind: u16, payload: &[u8]) -> Option<(u16, u8, &[u8])> {
    const MESSAGE: u16 = 0xff;
    let attributes = payload.get(NFGENMSG_LENGTH..)?;
    let is_of_nftables = kind >> 8 == NFNL_SUBSYS_NFTABLES;
    is_of_nftables.then_some((kind & MESSAGE, payload[0], attributes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attr::AttrWriter;

    #[test]
    fn rules_and_elements_are_distinguished_from_deletions_and_from_the_generation() {
        let payload = [2, 0, 0, 0, 9, 9];
        assert_eq!(Notification::decode(0x0a06, &payload), Notification::Added(&[9, 9]));
        assert_eq!(Notification::decode(0x0a0c, &payload), Notification::Added(&[9, 9]));
        // NFT_MSG_DELSETELEM; another subsystem; a message without the fixed part.
        assert_eq!(Notification::decode(0x0a0e, &payload), Notification::Other);
        assert_eq!(Notification::decode(0x010c, &payload), Notification::Other);
        assert_eq!(Notification::decode(0x0a0c, &[2]), Notification::Other);
    }

    #[test]
    fn the_generation_names_the_thread_that_committed() {
        let mut payload = vec![0; 4];
        let mut attributes = AttrWriter::new(&mut payload);
        attributes.be32(NFTA_GEN_ID, 7);
        attributes.str(NFTA_GEN_PROC_NAME, "nft");
        let program = Some("nft");
        assert_eq!(Notification::decode(0x0a0f, &payload), Notification::Generation { program });
        let program = None;
        assert_eq!(Notification::decode(0x0a0f, &[0; 4]), Notification::Generation { program });
    }
}
