//! Formats shares of packets.

use std::fmt;

/// A share from 0 to 1, formatted as percentage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Percent(pub(super) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 * 100.0 {
            all if all > 99.999_99 => f.write_str("100 %"),
            part if part >= 0.1 => write!(f, "{part:.1} %"),
            part if part >= 0.001 => write!(f, "{part:.3} %"),
            _ => f.write_str("< 0.001 %"),
        }
    }
}

impl Percent {
    /// Returns whether the share is 1, apart from rounding.
    pub(super) fn is_all(self) -> bool {
        self.0 > 0.999_999_9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_keep_their_digits() {
        let text = |share| Percent(share).to_string();
        assert_eq!(text(1.0), "100 %");
        assert_eq!(text(1.0 / 3.0), "33.3 %");
        assert_eq!(text(1.0 / 5000.0), "0.020 %");
        assert_eq!(text(1e-9), "< 0.001 %");
    }
}
