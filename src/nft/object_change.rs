//! Changes of objects of any table, from the kernel's notifications.

use super::abi::*;
use super::fields::{DecodeError, Fields};
use crate::any::{AnyElement, AnySet, decode_any_elements};
use crate::chain::Chain;
use crate::family::TableFamily;
use crate::flowtable::Flowtable;
use crate::listed_rule::ListedRule;
use crate::netlink::attr::Attrs;
use crate::notification::split;
use crate::object::Object;
use crate::whole::WholeTable;

/// A change of one object, or the end of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// Family of the table.
    pub family: TableFamily,
    /// Name of the table.
    pub table: String,
    /// The object was deleted. The kernel then lists little more than its name.
    pub is_deleted: bool,
    /// The object.
    pub object: ChangedObject,
}

/// An object that was created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedObject {
    /// A table, without its contents.
    Table(WholeTable),
    /// A chain.
    Chain(Chain),
    /// A rule.
    Rule(ListedRule),
    /// A set or map, without its elements.
    Set(AnySet),
    /// Elements of a set or map.
    Elements {
        /// Name of the set or map.
        set: String,
        /// The elements.
        elements: Vec<AnyElement>,
    },
    /// A stateful object.
    Object(Object),
    /// A flowtable.
    Flowtable(Flowtable),
}

impl ObjectChange {
    /// Reads a message of the group `NFNLGRP_NFTABLES` from its type and its payload after the
    /// header. `None` for the new generation, and for messages that are not known here.
    ///
    /// # Errors
    /// The attributes are broken.
    ///
    /// ```
    /// use nft_netlink::{ChangedObject, ObjectChange, TableFamily};
    ///
    /// // NFT_MSG_DELTABLE of table "t" of family inet.
    /// let payload = [1, 0, 0, 0, 6, 0, 1, 0, b't', 0, 0, 0];
    /// let change = ObjectChange::decode(0x0a02, &payload)?.unwrap();
    /// assert_eq!((change.family, &*change.table), (TableFamily::Inet, "t"));
    /// assert!(change.is_deleted && matches!(change.object, ChangedObject::Table(_)));
    /// # Ok::<(), nft_netlink::DecodeError>(())
    /// ```
    pub fn decode(kind: u16, payload: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((kind, family, attributes)) = split(kind, payload) else { return Ok(None) };
        let Some(family) = TableFamily::of(family) else { return Ok(None) };
        let object = match kind {
            NFT_MSG_NEWTABLE | NFT_MSG_DELTABLE => {
                ChangedObject::Table(WholeTable::decode_header(family, attributes)?)
            }
            NFT_MSG_NEWCHAIN | NFT_MSG_DELCHAIN => ChangedObject::Chain(Chain::decode(attributes)?),
            NFT_MSG_NEWRULE | NFT_MSG_DELRULE => {
                ChangedObject::Rule(ListedRule::decode(attributes)?)
            }
            NFT_MSG_NEWSET | NFT_MSG_DELSET => ChangedObject::Set(AnySet::decode(attributes)?),
            NFT_MSG_NEWSETELEM | NFT_MSG_DELSETELEM => {
                let mut elements = Vec::new();
                decode_any_elements(attributes, |element| elements.push(element))?;
                let set = Fields::read(Attrs::new(attributes))?.str(NFTA_SET_ELEM_LIST_SET)?;
                ChangedObject::Elements { set: set.to_owned(), elements }
            }
            NFT_MSG_NEWOBJ | NFT_MSG_DELOBJ => ChangedObject::Object(Object::decode(attributes)?),
            NFT_MSG_NEWFLOWTABLE | NFT_MSG_DELFLOWTABLE => {
                ChangedObject::Flowtable(Flowtable::decode(attributes)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self {
            family,
            table: crate::table::table_name(attributes)?.to_owned(),
            is_deleted: is_deletion(kind),
            object,
        }))
    }
}

fn is_deletion(kind: u16) -> bool {
    matches!(
        kind,
        NFT_MSG_DELTABLE
            | NFT_MSG_DELCHAIN
            | NFT_MSG_DELRULE
            | NFT_MSG_DELSET
            | NFT_MSG_DELSETELEM
            | NFT_MSG_DELOBJ
            | NFT_MSG_DELFLOWTABLE
    )
}
