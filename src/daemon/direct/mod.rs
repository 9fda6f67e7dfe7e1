//! Direct return: facts about the links of this node, that is which nodes are on them and what their
//! devices do with packets; and its tunnel device.

mod allowed_devices;
mod device_facts;
pub mod device_settings;
mod known;
mod look;
mod neighbours;
mod node_links;
mod refusals;
mod requested;
mod rounds;
mod tunnel;

pub use allowed_devices::AllowedDevices;
pub use look::look;
pub use neighbours::{Following, Neighbours};
pub(crate) use requested::{other_nodes, own_address};
pub use tunnel::{DEVICE as TUNNEL_DEVICE, TunnelEnds, TunnelSettings, remove as remove_tunnel};
