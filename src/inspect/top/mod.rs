//! Live state of this node on one screen: from the daemon's metrics port, the kernel's tables and
//! conntrack.
//!
//! Nothing here reads a socket or a clock. [`History`] builds a [`TopView`] from a [`Sample`] and those
//! before it, and [`draw`] or [`plain`] writes the view. Text from outside is escaped on the way
//! there.

mod draw;
mod history;
mod scrape;
mod screen_state;
mod status;
mod views;
mod window;

pub use draw::{draw, plain};
pub use history::{History, KernelSample, ROWS, Report, Sample};
pub use scrape::Scrape;
pub use screen_state::{Action, Key, ScreenList, ScreenState};
pub use status::Status;
pub use views::{ConnectionsSample, DaemonView, KernelView, TopView};
