//! Outside objects become our events.

pub mod addresses;
pub mod files;
pub mod kube;
pub mod objects;
