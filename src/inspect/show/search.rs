//! Frontends by a part of their names or addresses.

use super::format::address;
use super::services::Services;

/// What a search found.
#[derive(Debug, PartialEq, Eq)]
pub struct Matches {
    /// The places of the first frontends, ascending.
    pub places: Vec<usize>,
    /// How many frontends match.
    pub count: usize,
}

impl Services {
    /// The first `most` frontends whose `namespace/name:port` or `address:port/protocol` contains
    /// `text`, whose case does not matter.
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
