//! The printer: from expressions to the text of nft(8).
//!
//! The kernel runs expressions on registers. A [`printer::Printer`] follows them and keeps what each register
//! holds; a comparison or an action takes that out and becomes a statement. Matches of protocols that
//! nft(8) adds to a rule are left out again ([`protocols`]). A part that is unknown is printed in
//! brackets.

mod action;
mod compare;
mod load_fields;
// Tables with several rows in a line.
#[rustfmt::skip]
mod headers;
mod kind;
mod load;
#[rustfmt::skip]
mod names;
mod lookup;
mod printer;
mod protocols;
mod side;
mod translate;
mod types;

pub(crate) use kind::{Kind, key_type};
pub use printer::RuleContext;
pub use types::UnknownType;
