//! What the tables do, read back from the kernel. No daemon is needed.

pub mod explain;
