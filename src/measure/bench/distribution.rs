//! Numbers of endpoints of each service of a synthetic cluster.
//!
//! With any distribution the sum is exactly services times average, so that runs with the same
//! flags have the same number of endpoints.

use serde::{Deserialize, Serialize};

use super::random::Random;

engine::named! {
    /// Distribution of endpoints over services.
    #[derive(Default, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum Distribution {
        /// As in real clusters: most services have 1 to 5, some have dozens, a few have thousands
        #[default]
        Real = "real",
        /// Every service has the average
        Even = "even",
    }
}

impl Distribution {
    /// Returns the count of each service; at least one endpoint each.
    pub fn counts(self, services: u32, average: u32, random: &mut Random) -> Vec<u32> {
        match self {
            Self::Even => vec![average; services as usize],
            Self::Real => real(services, average, random),
        }
    }
}

/// One of this many services has thousands of endpoints; a small cluster has a smaller one.
const LARGE_EACH: u32 = 10_000;

fn real(services: u32, average: u32, random: &mut Random) -> Vec<u32> {
    let total = services * average;
    let mut counts: Vec<u32> = (0..services).map(|_| small(average, random)).collect();
    for _ in 0..services.div_ceil(LARGE_EACH) {
        // A large service has at most a twentieth of all endpoints.
        let size = random.between(2_000, 5_000).min(total / 20).max(1);
        let place = random.below(services);
        if let Some(count) = counts.get_mut(place as usize) {
            *count = size;
        }
    }
    balance(&mut counts, total, random);
    counts
}

/// Returns the count of an ordinary service. With an average of 5, the mean is near 5.
fn small(average: u32, random: &mut Random) -> u32 {
    let size = match random.below(1_000) {
        0..=349 => 1,
        350..=599 => 2,
        600..=769 => 3,
        770..=879 => random.between(4, 5),
        880..=979 => random.between(6, 20),
        980..=996 => random.between(21, 100),
        _ => random.between(101, 400),
    };
    (size * average / 5).max(1)
}

/// Adds and removes single endpoints until the total is right, except at large services.
fn balance(counts: &mut [u32], total: u32, random: &mut Random) {
    let services = u32::try_from(counts.len()).unwrap_or(u32::MAX);
    let mut sum: u32 = counts.iter().sum();
    while sum != total {
        let Some(count) = counts.get_mut(random.below(services) as usize) else { return };
        if sum < total && *count < 1_000 {
            *count += 1;
            sum += 1;
        } else if sum > total && *count > 1 {
            *count -= 1;
            sum -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_has_the_asked_number_of_endpoints() {
        for distribution in [Distribution::Real, Distribution::Even] {
            for (services, average) in [(1, 1), (1, 5), (50, 1), (1_000, 5), (20_000, 7)] {
                let counts = distribution.counts(services, average, &mut Random::new(1));
                assert_eq!(counts.len(), services as usize);
                assert_eq!(counts.iter().sum::<u32>(), services * average);
                assert!(counts.iter().all(|count| *count > 0));
            }
        }
    }

    #[test]
    fn most_services_are_small_and_a_few_have_thousands_of_endpoints() {
        let counts = Distribution::Real.counts(50_000, 5, &mut Random::new(1));
        let small = counts.iter().filter(|count| **count <= 5).count();
        assert!((40_000..46_000).contains(&small), "{small} have at most 5");
        let large = counts.iter().filter(|count| **count >= 2_000).count();
        assert!((3..=5).contains(&large), "{large} have thousands");
    }

    #[test]
    fn the_seed_decides() {
        let counts = |seed| Distribution::Real.counts(1_000, 5, &mut Random::new(seed));
        assert_eq!(counts(1), counts(1));
        assert_ne!(counts(1), counts(2));
    }
}
