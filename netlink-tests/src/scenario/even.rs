//! Whether servers got even shares.

use std::collections::BTreeMap;

/// Checks that `servers` servers got the same share each, as far as chance allows.
///
/// # Panics
/// When Pearson's chi-square is larger than it is once in a billion times, or servers are missing.
#[track_caller]
pub fn assert_even(shares: &BTreeMap<String, usize>, servers: usize) {
    assert_eq!(shares.len(), servers, "{shares:?}");
    let (statistic, limit) = (chi_square(shares), limit(servers - 1));
    assert!(statistic < limit, "chi-square {statistic:.1} is over {limit:.1}: {shares:?}");
}

/// Asserts that the shares are as those of these weights, as [`assert_even`] does.
///
/// # Panics
/// When Pearson's chi-square is larger than it is once in a billion times, or servers are missing.
#[track_caller]
pub fn assert_weighted(shares: &BTreeMap<String, usize>, weights: &[(&str, usize)]) {
    assert!(shares.keys().map(String::as_str).eq(weights.iter().map(|it| it.0)), "{shares:?}");
    let (count, sum) =
        (shares.values().sum::<usize>(), weights.iter().map(|it| it.1).sum::<usize>());
    let deviation = |(name, weight): &(&str, usize)| {
        let expected = count as f64 * *weight as f64 / sum as f64;
        (shares[*name] as f64 - expected).powi(2) / expected
    };
    let statistic: f64 = weights.iter().map(deviation).sum();
    let limit = limit(weights.len() - 1);
    assert!(statistic < limit, "chi-square {statistic:.1} is over {limit:.1}: {shares:?}");
}

fn chi_square(shares: &BTreeMap<String, usize>) -> f64 {
    let mean = shares.values().sum::<usize>() as f64 / shares.len() as f64;
    shares.values().map(|&share| (share as f64 - mean).powi(2) / mean).sum()
}

/// The value that chi-square exceeds with a chance of at most 10^-9, by the approximation of Wilson and
/// Hilferty.
fn limit(degrees: usize) -> f64 {
    let degrees = degrees as f64;
    let part = 2.0 / (9.0 * degrees);
    degrees * (1.0 - part + STANDARD_DEVIATIONS * part.sqrt()).powi(3)
}

/// A normal variable exceeds this with a chance of 10^-9.
const STANDARD_DEVIATIONS: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: &[usize]) -> BTreeMap<String, usize> {
        shares.iter().enumerate().map(|(i, share)| (i.to_string(), *share)).collect()
    }

    #[test]
    fn shares_that_chance_explains_are_even() {
        assert_even(&shares(&[480, 520, 530, 470]), 4);
    }

    #[test]
    #[should_panic(expected = "chi-square")]
    fn a_server_with_twice_its_share_is_noticed() {
        assert_even(&shares(&[800, 400, 400, 400]), 4);
    }

    #[test]
    #[should_panic(expected = "chi-square")]
    fn a_server_without_its_weight_is_noticed() {
        let shares = shares(&[500, 500]);
        assert_weighted(&shares, &[("0", 3), ("1", 3)]);
        assert_weighted(&shares, &[("0", 3), ("1", 1)]);
    }

    #[test]
    fn the_limit_is_exceeded_once_in_a_billion_times_or_less() {
        // With 4 degrees of freedom the chance has a closed form.
        let half = limit(4) / 2.0;
        let chance = (-half).exp() * (1.0 + half);
        assert!((1e-11..1e-9).contains(&chance), "{chance}");
    }
}
