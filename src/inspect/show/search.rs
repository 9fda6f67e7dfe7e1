//! Frontends by a part of their names or addresses, or by their endpoints.

use std::net::SocketAddr;

use engine::ruleset::Frontend;

use super::busiest::Top;
use super::filter::Endpoints;
use super::services::Services;

impl Services {
    /// Returns the places of the first `most` frontends, ascending, whose `namespace/name:port` or
    /// `address:port/protocol` contains `text`, ignoring case, and those with an endpoint of it, if
    /// it is an address, address and port, or a range. A node port has every address that serves it.
    pub fn search(&self, text: &str, most: usize) -> Top<usize> {
        let text = text.to_ascii_lowercase();
        let endpoints = text.parse::<Endpoints>().ok();
        let mut matches = Top::default();
        for (place, entry) in self.entries.iter().enumerate() {
            let uses = |endpoints: Endpoints| self.targets(entry).any(|it| endpoints.contain(it));
            if !entry.label.contains(&text)
                && !self.has_address(&entry.frontend, &text)
                && !endpoints.is_some_and(uses)
            {
                continue;
            }
            matches.count += 1;
            if matches.rows.len() < most {
                matches.rows.push(place);
            }
        }
        matches
    }

    /// Returns whether the frontend as `show` lists it, or an address and port that serve it,
    /// contain `text`.
    fn has_address(&self, frontend: &Frontend, text: &str) -> bool {
        if self.address(frontend).contains(text) {
            return true;
        }
        let Frontend::NodePort { family, protocol, port } = *frontend else { return false };
        let mut addresses = self.node_port_addresses(family).into_iter().flatten();
        addresses.any(|address| {
            let socket = SocketAddr::new(*address, port.get());
            format!("{socket}/{protocol}").contains(text)
        })
    }
}
