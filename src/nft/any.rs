//! Chains, sets, elements, objects and flowtables of tables of any program.
//!
//! Decoding keeps everything, also what this program never sends: attributes that are not known
//! stay as bytes. Encoding gives what the kernel needs to create the object again.
//! [`super::object`] and its neighbours read our own tables in the form in which they were sent.

mod chain;
mod element;
mod flowtable;
mod kept;
mod object;
mod set;

pub use chain::{AnyChain, BaseChain};
pub use element::{AnyElement, ElementData, decode_any_elements};
pub use flowtable::AnyFlowtable;
pub use kept::OtherAttribute;
pub use object::AnyObject;
pub use set::AnySet;

use crate::netlink::attr::{AttrWriter, TooLong};

/// Returns the attributes that `fill` writes.
fn written(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    let mut w = AttrWriter::new(&mut bytes);
    fill(&mut w);
    w.finish()?;
    Ok(bytes)
}
