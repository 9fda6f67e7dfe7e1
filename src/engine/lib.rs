//! Desired and installed state of kube-proxy's tables, and the transaction between them.
//!
//! No I/O, no clock, no log, no async, no Kubernetes types: the same events and answers give the same
//! operations, in the same order, in every process.

pub mod columns;
pub mod counters;
pub mod desired;
pub mod diff;
pub mod direct;
pub mod flow;
pub mod flowtable;
pub mod model;
mod named;
pub mod piece;
pub mod printable;
mod reconcile;
pub mod routing;
pub mod ruleset;
pub mod schedule;
mod setting_error;
mod stable_hash;

pub use self::reconcile::*;
pub use self::setting_error::SettingError;
