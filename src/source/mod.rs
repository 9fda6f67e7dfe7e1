//! Outside objects become our events.

pub mod files;
pub mod kube;
pub mod objects;
