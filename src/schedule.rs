//! When to commit. Reads no clock and does no I/O.
