//! Unused elements: no route refers to them any more, but packets may still look them up.
//!
//! A packet looks up one set after the other, and each lookup reads the newest commit. So an
//! element is deleted later than the last route to it: in the next transaction, or after [`GRACE`]
//! where every lookup of a packet must succeed.

use std::time::Duration;

/// Maximum time of a packet in the tables. The lookups take microseconds, but the host may pause a
/// virtual processor meanwhile.
pub const GRACE: Duration = Duration::from_millis(250);
