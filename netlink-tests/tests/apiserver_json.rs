//! The tests of `apiserver.rs` with a server that answers JSON only.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

#[path = "apiserver.rs"]
mod apiserver;
