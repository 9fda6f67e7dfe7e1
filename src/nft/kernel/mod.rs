//! The kernel interface: commit, read back, detect changes by other programs.
//!
//! A transaction is applied as a whole or not at all; the error states which, if that can be known.
//! The trait [`Kernel`] has two implementations: [`Nftables`], and `Fake` of the crate
//! `nft-netlink-fake` for tests.

mod answer;
mod commit;
mod commit_notifications;
mod culprit;
mod error;
mod interface;
mod lost_answer;
mod nftables;
mod objects;
mod other_programs;
mod read;
mod release;
mod tracer;
mod whole;

pub use commit_notifications::Notifications;
pub use error::{CommitError, Malformed, OpenError, ReadError};
pub use interface::{Committed, Contents, ElementKey, ElementRead, Kernel, OthersChanges};
pub use lost_answer::was_applied;
pub use nftables::{MAX_ANSWER_BYTES, Nftables};
pub use read::MAX_ANSWER_TIME;
pub use release::Release;
pub use tracer::Tracer;
pub use whole::{Extent, UpdateError};

pub use crate::request::Generation;
