//! nftables objects and the transaction. Knows nothing of Kubernetes and does no I/O.
//!
//! Every object has two encodings, the bytes that netlink carries and the text of nft(8), and one
//! decoding. They stand side by side in the file of the object.

mod abi;
mod element;
mod expr;
mod object;
mod rule;
mod set;
mod statement;
mod transaction;
mod value;
mod verdict;

pub use element::{Element, ElementData};
pub use expr::Expr;
pub use object::{Chain, ChainType, Family, Hook, HookPoint, Name, Table, TableFlags, TableRef};
pub use rule::Rule;
pub use set::{Set, SetData, SetFlags, Type};
pub use statement::{Operand, Selector, Statement};
pub use transaction::{
    Acknowledge, Batch, EncodeError, MessageKind, MessageOrigin, Operation, Transaction,
};
pub use value::Value;
pub use verdict::Verdict;
