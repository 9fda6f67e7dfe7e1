//! nftables objects and the transaction. Independent of Kubernetes and without I/O.
//!
//! Every object has two encodings, netlink bytes and nft(8) text, and one decoding. All are in the
//! file of the object.

#![doc = include_str!("README.md")]
#![forbid(unsafe_code)]

mod abi;
mod any;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod batch;
pub mod copy;
mod counter;
pub mod difference;
mod element;
mod element_type;
pub mod expression;
pub mod family;
mod fields;
mod flowtable;
mod jump;
pub mod kernel;
pub mod key;
mod listed_rule;
mod locate;
mod message_kind;
pub mod netlink;
mod notification;
mod object;
mod object_change;
mod print;
pub mod request;
#[cfg(test)]
mod roundtrip;
mod rule;
mod set;
mod text;
mod trace;
mod transaction;
mod userdata;
mod value;
mod verdict;
mod whole;

pub use crate::family::{Family, TableFamily};
pub use any::{
    AnyChain, AnyElement, AnyFlowtable, AnyObject, AnySet, BaseChain, ElementData, OtherAttribute,
    decode_any_elements,
};
pub use batch::{Acknowledge, Batch, EncodeError, LIST_LIMIT, MessageOrigin};
pub use counter::Counter;
pub use element::{Element, ElementView, decode_elements};
pub use element_type::Type;
pub use expression::Expression;
pub use fields::DecodeError;
pub use flowtable::{DecodedFlowtable, Device, Flowtable, MAX_DEVICES};
pub use jump::Jump;
pub use listed_rule::ListedRule;
pub use locate::{Location, locate};
pub use message_kind::MessageKind;
pub use nix::errno::Errno;
pub use notification::Notification;
pub use object::{
    Chain, ChainType, Hook, HookPoint, Name, Table, TableFlags, TableRef, chain_name, table_name,
    table_owner,
};
pub use object_change::{ChangedObject, ObjectChange};
pub use print::{RuleContext, SetContents};
pub use rule::Rule;
pub use set::{DecodedSet, Set, SetFlags};
pub use trace::{TraceEvent, TraceKind};
pub use transaction::{Operation, Transaction};
pub use value::Value;
pub use verdict::Verdict;
pub use whole::WholeTable;
