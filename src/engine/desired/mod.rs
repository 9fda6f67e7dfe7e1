//! The desired elements of each service. Pure functions.
//!
//! Each service is rendered on its own: its frontends, their endpoint lists, and the elements that
//! several services may share. Numbers, slots and contested claims depend on the installed state
//! and belong to `diff`.

mod label;
pub(crate) mod maglev;
mod optional_chains;
mod port_problems;
mod product_limits;
mod render;
mod service;
mod slot_budget;
mod slot_demand;
mod slot_plan;
mod small_set;
mod source_ranges;
mod timeouts;

pub use label::Label;
pub use render::{PORT_RANGES, render};
pub use service::{DesiredFrontend, DesiredPort, DesiredService, NoLocal, Scope, Traffic};
pub use slot_budget::{RANGE_BUDGET, SlotBudget, SlotGrants, SlotUse};
pub use slot_demand::{SlotDemand, SlotGrant};
pub use slot_plan::SlotPlan;
pub use small_set::SmallSet;
pub use timeouts::{GrantedTimeout, Timeouts};
