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
mod link_kind;
mod links;
mod lost_answer;
mod neighbours;
mod nftables;
mod objects;
mod other_programs;
mod read;
mod release;
mod route;
mod tracer;
mod tunnel;
mod whole;

pub use commit_notifications::Notifications;
pub use error::{CommitError, Malformed, OpenError, ReadError};
pub use interface::{Committed, Contents, ElementKey, ElementRead, Kernel, OthersChanges};
pub use link_kind::{LinkKind, link_kind};
pub use links::{Link, LinkChange, LinkListener, LinkNews, list_links};
pub use lost_answer::was_applied;
pub use neighbours::{
    Neighbour, NeighbourChange, NeighbourChanges, NeighbourListener, NeighbourState, NeighbourTable,
};
pub use nftables::{MAX_ANSWER_BYTES, Nftables};
pub use read::MAX_ANSWER_TIME;
pub use release::Release;
pub use route::{NoRoute, Route, Routes, Way, interface_index, interface_name};
pub use tracer::Tracer;
pub use tunnel::{HardwareAddress, TUNNEL_ADDRESS, TunnelDevice, TunnelEntry, Tunnels, Vxlan};
pub use whole::{Extent, UpdateError};

pub use crate::request::Generation;
