//! Sources: objects from outside become events of the model.

pub mod addresses;
pub mod files;
#[cfg(feature = "api-server")]
pub mod kube;
pub mod notice;
pub mod objects;
mod wanted;

pub use wanted::Wanted;
