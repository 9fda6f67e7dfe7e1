//! What happens on this node, on one screen: from the daemon's metrics port, the kernel's tables and
//! conntrack.
//!
//! Nothing here reads a socket or a clock: a [`Look`] comes in, [`History`] makes a [`View`] of it
//! and of the looks before, and [`draw`] or [`plain`] writes the view. Text from outside is escaped
//! where a view is made.

mod draw;
mod history;
mod scrape;
mod state;
mod status;
mod view;
mod window;

pub use draw::{draw, plain};
pub use history::{ConnectionsLook, History, KernelLook, Look, Report};
pub use scrape::Scrape;
pub use state::{Action, Key, List, State};
pub use status::Status;
pub use view::{DaemonView, KernelView, View};

/// Rows of a list that are kept.
pub const ROWS: usize = 200;
