//! The chains, rules, sets and maps of our tables, and their elements.
//!
//! The chains and rules do not depend on the number of services. One map leads from a frontend to
//! the number of its endpoint list ([`number`]). Constant rules branch by the size class in that
//! number. One map holds each list once. Services and endpoints change only elements of sets and
//! plain maps, so the kernel never validates the table again for them.
//!
//! A new connection takes these steps:
//!
//! ```text
//! filter prerouting, output   firewall-sources, while some service has source ranges
//! nat prerouting, output      services or nodeports: priority = route
//!                             -> service-traffic -> special-traffic: masquerade? local? affinity?
//!                             -> pick: size class -> a slot of the list, DNAT
//!                             without DNAT: no-endpoint, cluster-ips-check: refuse or drop
//! filter forward, output      cluster-ips-check, while an endpoint may be a cluster IP
//! nat postrouting             masquerade
//! ```

pub mod affinity;
pub mod base;
pub(crate) mod chain;
mod draw;
mod element;
mod established;
pub mod field;
mod fields;
mod layout;
mod lookups;
pub mod number;
pub mod phrase;
mod range_rules;
mod read_element;
mod refusal;
mod reset;
mod sets;
mod settings;
mod size_classes;
mod slots;
mod source_rules;

pub use chain::ChainSpec;
pub use draw::classes_of;
pub use element::{Frontend, ListUse, Member, Subject, TableElement, Unserved, slot_key};
pub use established::flowtable;
pub(crate) use fields::Fields;
pub use layout::{
    LAYOUT, LEAST_CONNECTIONS, TABLE, TABLE_COMMENT, table, table_comment, without_scheduler,
};
pub use lookups::Lookups;
pub use read_element::{recorded_client, stray, target};
pub use refusal::Refusal;
pub use sets::{CLIENTS, Layouts, OptionalSets, SetId, TableSets};
pub use settings::{LocalDetector, Masquerade, NodePorts, OptionalChains, Settings};
pub use size_classes::SizeClasses;
pub use slots::{ListSlot, NamedList, read_slots};
