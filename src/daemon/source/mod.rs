//! Sources: objects from outside become events of the model.

pub mod addresses;
pub mod files;
pub mod kube;
pub mod objects;
