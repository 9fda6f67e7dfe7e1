//! nftables: objects, their bytes and their text, transactions, and the kernel over netlink. Knows
//! nothing of Kubernetes.
//!
//! Every object has two encodings, netlink bytes and nft(8) text, and one decoding. They are in the
//! file of the object; those of rules are in [`expression`], `listed_rule.rs` and `print`.
//!
//! | type | what for |
//! |---|---|
//! | [`TableRef`], [`Chain`], [`Flowtable`], [`Object`], [`Expression`] | both ways of use, any program's tables |
//! | [`WholeTable`] of [`ListedRule`], [`AnySet`], [`AnyElement`] | read, compare and update tables of any program: [`difference`] |
//! | [`Transaction`] of [`Table`], [`Rule`], [`Set`], [`Element`] | tables of one program, sent operation by operation: [`kernel`] |
//!
//! A [`Set`] has the types of [`Type`] only, and an [`Element`] fixed room for its key and data
//! ([`Value`]): they are encoded and compared without allocation. [`AnySet`] and [`AnyElement`] hold
//! what any kernel lists, also what is not known here.

#![doc = include_str!("README.md")]
#![forbid(unsafe_code)]

mod abi;
mod any;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod batch;
mod chain;
mod counter;
pub mod difference;
mod element;
mod element_type;
pub mod expression;
pub mod family;
mod fields;
mod flowtable;
mod hook;
mod jump;
mod kept;
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
mod rule;
mod set;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod transaction;
mod userdata;
mod value;
mod verdict;
mod whole;

pub use crate::family::{Family, TableFamily};
pub use any::{AnyElement, AnySet, ElementDetails, SetContents, decode_any_elements};
pub use batch::{Acknowledge, Batch, EncodeError, MessageOrigin};
pub use chain::{BaseChain, Chain, HookPoint, chain_name};
pub use counter::Counter;
pub use element::{Element, ElementView, LIST_LIMIT, decode_elements};
pub use element_type::Type;
pub use expression::Expression;
pub use fields::DecodeError;
pub use flowtable::{Device, Flowtable, MAX_DEVICES};
pub use hook::Hook;
pub use jump::Jump;
pub use kept::OtherAttribute;
pub use listed_rule::ListedRule;
pub use locate::{Location, locate};
pub use message_kind::MessageKind;
pub use nix::errno::Errno;
pub use notification::Notification;
pub use object::Object;
pub use object_change::{ChangedObject, ObjectChange};
pub use print::{RuleContext, UnknownType};
pub use rule::Rule;
pub use set::{DecodedSet, Set, SetFlags};
pub use table::{Table, TableFlags, TableRef, table_name};
pub use text::Name;
pub use trace::{TraceEvent, TraceKind};
pub use transaction::{Destroyed, ElementList, Operation, Transaction};
pub use value::Value;
pub use verdict::Verdict;
pub use whole::WholeTable;
