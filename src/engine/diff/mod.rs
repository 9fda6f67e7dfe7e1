//! The difference between desired and installed elements.
//!
//! A touched service is rendered when its update is due and compared with the installed elements.
//! The difference is added to a piece of a transaction and counts as installed from then on. So the
//! caller must commit the piece, or read the tables back and call
//! [`Diff::replace_installed_elements`].
//!
//! Packets that pass during a commit may look up one map before it and the next one after it. So
//! nothing is deleted in the commit that removes the last route to it, but in a later one. List
//! numbers rest until then.

mod assignment;
mod both_tables;
mod claims;
mod correction;
mod desired_state;
mod ended_elements;
mod finding;
mod found_elements;
mod frontends;
mod holdings;
mod known_elements;
mod list;
mod lists;
mod lists_by_purpose;
mod members;
mod numbers;
mod packed_map;
mod progress;
mod service_counts;
mod services;
mod serving;
mod source_ranges;
#[cfg(test)]
mod tests;
mod unread;
mod unused;
mod update;
mod waiting;

pub use both_tables::{Context, Diff};
pub use claims::age;
pub use finding::{Changed, ElementId, Finding, InstalledElement};
pub use found_elements::FoundElements;
pub use frontends::FrontendState;
pub use known_elements::KnownElements;
pub use members::NodePortIps;
pub(crate) use numbers::Numbers;
pub use progress::{Conflict, Progress, Updated};
pub use service_counts::NoLocalPorts;
pub use serving::{Serving, ServingChange, Targets};
pub use unread::ReadLists;
pub use unused::{GRACE, Kept};
