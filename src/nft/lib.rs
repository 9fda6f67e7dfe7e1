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
mod expr;
pub mod expression;
pub mod family;
mod fields;
mod flowtable;
mod instruction;
mod jump;
pub mod kernel;
pub mod key;
mod listed;
mod listing;
mod locate;
mod message_kind;
pub mod netlink;
mod notification;
mod object;
mod object_change;
mod operator;
mod print;
mod register;
pub mod request;
#[cfg(test)]
mod roundtrip;
mod rule;
mod selector;
mod set;
mod statement;
mod text;
mod trace;
mod transaction;
mod userdata;
mod value;
mod verdict;
mod whole;
mod word;

pub use crate::family::{Family, TableFamily};
pub use any::{
    AnyChain, AnyElement, AnyFlowtable, AnyObject, AnyRule, AnySet, BaseChain, ElementData,
    OtherAttribute, decode_any_elements,
};
pub use batch::{Acknowledge, Batch, EncodeError, LIST_LIMIT, MessageOrigin};
pub use counter::Counter;
pub use element::{Element, ElementView, decode_elements};
pub use expr::Expr;
pub use expression::Expression;
pub use fields::DecodeError;
pub use flowtable::{DecodedFlowtable, Device, Flowtable, MAX_DEVICES};
pub use instruction::Instruction;
pub use jump::Jump;
pub use listed::ListedRule;
pub use listing::rule_text;
pub use locate::{Location, locate};
pub use message_kind::MessageKind;
pub use nix::errno::Errno;
pub use notification::Notification;
pub use object::{
    Chain, ChainType, Hook, HookPoint, Name, Table, TableFlags, TableRef, chain_name, table_name,
    table_owner,
};
pub use object_change::{ChangedObject, ObjectChange};
pub use operator::{DynsetOperation, Order};
pub use print::{RuleContext, SetContents};
pub use register::Register;
pub use rule::{DecodedRule, Rule};
pub use selector::{Operand, Selector};
pub use set::{DecodedSet, Set, SetFlags, Type};
pub use statement::{ConnectionSize, LowerError, Statement};
pub use trace::{TraceEvent, TraceKind};
pub use transaction::{Operation, Transaction};
pub use value::Value;
pub use verdict::Verdict;
pub use whole::WholeTable;
