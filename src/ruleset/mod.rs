//! What packets run: chains, rules, sets and maps of our tables, and their elements.
//!
//! The chains and rules are the same however many services there are. A frontend leads in one map
//! to the number of its endpoint list ([`number`]); constant rules choose by the size class in that
//! number; one map holds each list once. What changes with services and endpoints is elements of
//! sets and plain maps only, so the kernel never validates the table again for it.
//!
//! A new connection takes these steps:
//!
//! ```text
//! filter prerouting, output   firewall-sources, if only some sources may use the address
//! nat prerouting, output      services or nodeports: priority = route
//!                             -> service-traffic -> special-traffic: masquerade? local? affinity?
//!                             -> pick: size class -> a slot of the list, DNAT
//! filter input, forward,      no-endpoint: refuse or drop
//!   output                    cluster-ips-check: refuse or drop what is no service port
//! nat postrouting             masquerade
//! ```

pub mod affinity;
pub mod base;
mod draw;
mod element;
pub mod number;
mod sets;
mod slots;

pub use element::{
    Frontend, Member, Range, Subject, TableElement, Unserved, remembered, slot_key, stray, target,
};
pub use sets::{CLIENTS, Layouts, SetId, TableSets};
pub use slots::{NamedList, SlotKeys};

use crate::nft::{Family, TableRef};

/// The name of our table in both families.
pub const TABLE: &str = "kube-proxy";

/// The number of this form of the ruleset. A table of another form is replaced whole.
pub const LAYOUT: u32 = 3;

/// Our table of one family.
pub fn table(family: Family) -> TableRef {
    TableRef { family, name: TABLE.into() }
}

/// The comment of our tables, which carries the layout's number: nft keeps it in a listing.
pub fn table_comment() -> String {
    format!("service proxy rules of deltaproxy, layout {LAYOUT}")
}
