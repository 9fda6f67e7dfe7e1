//! The endpoints of all services together.

use std::net::IpAddr;

use super::cluster::Cluster;
use super::name::ObjectName;

impl Cluster {
    /// Returns the number of endpoints in all slices. Iterates all of them.
    pub fn endpoint_count(&self) -> usize {
        self.all_endpoints().count()
    }

    /// Returns the addresses of the endpoints on this node, with the name of their service, in any
    /// order. Iterates all endpoints.
    pub fn local_endpoints(&self) -> impl Iterator<Item = (&ObjectName, IpAddr)> {
        let local = self.all_endpoints().filter(|(_, endpoint)| endpoint.conditions.local);
        local.map(|(name, endpoint)| (name, endpoint.address))
    }
}
