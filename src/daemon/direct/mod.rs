//! Direct return needs facts about the links of this node: which nodes are on them, and what their
//! devices do with packets.

mod allowed_devices;
pub mod device_settings;
mod known;
mod neighbours;
mod node_links;
mod rounds;

pub use allowed_devices::AllowedDevices;
pub use neighbours::Neighbours;
pub use node_links::NeighbourNews;
