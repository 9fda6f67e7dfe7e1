//! Frontends by a part of their names or addresses.

use super::format::address;
use super::services::Services;

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct Matches {
    /// Places of the first frontends, ascending.
    pub places: Vec<usize>,
    /// Number of matching frontends.
    pub count: usize,
}

impl Services {
    /// Returns the first `most` frontends whose `namespace/name:port` or `address:port/protocol`
    /// contains `text`, ignoring case.
    pub fn search(&self, text: &str, most: usize) -> Matches {
        let text = text.to_ascii_lowercase();
        let mut matches = Matches { places: Vec::new(), count: 0 };
        for (place, entry) in self.entries.iter().enumerate() {
            if !entry.label.contains(&text) && !address(&entry.frontend).contains(&text) {
                continue;
            }
            matches.count += 1;
            if matches.places.len() < most {
                matches.places.push(place);
            }
        }
        matches
    }
}
