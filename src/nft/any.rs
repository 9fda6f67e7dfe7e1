//! Sets and elements of tables of any program.
//!
//! Decoding keeps everything: attributes that are not known stay as bytes. Encoding gives what the
//! kernel needs to create the object again. [`crate::set`] and [`crate::element`] decode only what a
//! [`Transaction`](crate::Transaction) can write.

mod element;
mod set;

pub use element::{AnyElement, ElementDetails, SetContents, decode_any_elements};
pub use set::AnySet;
