//! Kubernetes API objects as protobuf, read into the same types as JSON.
//!
//! Field numbers are those of the files `generated.proto` of k8s.io/api and k8s.io/apimachinery.
//! Only the fields of those types are read. All others, such as `managedFields`, are skipped by
//! their length. Texts need not be UTF-8: as in the API server's JSON, U+FFFD replaces wrong bytes.
//! So no object that the API server accepts fails here.

mod endpoint_slice;
mod envelope;
mod message;
mod metadata;
mod node;
mod service;
#[cfg(test)]
mod tests;
mod wire;

pub(in crate::source) use envelope::{FormError, Frame, Page, STATUS, StatusText, read_status};
pub(in crate::source::objects) use message::ReadMessage;
pub(in crate::source) use wire::{Fields, WireError};
