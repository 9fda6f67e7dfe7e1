//! Sets and elements of tables of any program.
//!
//! Decoding keeps everything, also what this program never sends: attributes that are not known
//! stay as bytes. Encoding gives what the kernel needs to create the object again.
//! [`super::object`] and its neighbours read our own tables in the form in which they were sent.

mod element;
mod set;

pub use element::{AnyElement, ElementData, SetContents, decode_any_elements};
pub use set::AnySet;
