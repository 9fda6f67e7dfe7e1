//! The network of the node around the tables: its devices, neighbours, routes and tunnel, over
//! rtnetlink.

mod link_kind;
mod links;
mod neighbours;
mod route;
mod rtnetlink;
mod tunnel;

pub use link_kind::{LinkKind, link_kind};
pub use links::{LinkListener, list_links};
pub use neighbours::{
    Neighbour, NeighbourChange, NeighbourChanges, NeighbourListener, NeighbourState,
};
pub use route::{NoRoute, Route, Way, address_of, interface_index, interface_name};
pub use rtnetlink::{IFINFOMSG_LENGTH, Rtnetlink};
pub use tunnel::{HardwareAddress, TUNNEL_ADDRESS, TunnelDevice, TunnelEntry, Tunnels, Vxlan};
