//! Short formats of numbers and times.

use std::time::Duration;

use crate::top::scrape::Percentile;

/// Formats a count, or a number per second: `0`, `0.4`, `12.0`, `345`, `12k`, `3.4M`.
pub(super) fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 99.95 => format!("{value:.1}"),
        value if value < 9_999.5 => format!("{value:.0}"),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value if value < 99.95e6 => format!("{:.1}M", value / 1e6),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// Formats a count; short ones as whole numbers.
pub(super) fn count(value: f64) -> String {
    if value < 99_999.5 { format!("{value:.0}") } else { number(value) }
}

/// Formats a time with three digits: `37.0µs`, `1.25ms`, `2.50s`; `>10.0s` beyond the last bucket.
pub(super) fn percentile(value: Option<Percentile>) -> String {
    match value {
        Some(Percentile::About(seconds)) => time(seconds),
        Some(Percentile::Beyond(seconds)) => format!(">{}", time(seconds)),
        None => "-".to_owned(),
    }
}

fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 999.5e-6 => (seconds * 1e6, "µs"),
        seconds if seconds < 999.5e-3 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    match value {
        value if value < 9.995 => format!("{value:.2}{unit}"),
        value if value < 99.95 => format!("{value:.1}{unit}"),
        value => format!("{value:.0}{unit}"),
    }
}

/// Formats a span as `10s` or `2.5s`.
pub(super) fn span(span: Duration) -> String {
    let tenths = (span.as_secs_f64() * 10.0).round();
    format!("{}s", tenths / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (0.4, "0.4"),
            (12.0, "12.0"),
            (99.96, "100"),
            (9_999.4, "9999"),
            (9_999.6, "10k"),
            (999_600.0, "1.0M"),
            (3.44e6, "3.4M"),
            (2e9, "2000M"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((count(12.0), count(1e6)), ("12".to_owned(), "1.0M".to_owned()));
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (seconds, text) in [
            (0.0, "0.00µs"),
            (37e-6, "37.0µs"),
            (999.6e-6, "1.00ms"),
            (1.25e-3, "1.25ms"),
            (0.25, "250ms"),
            (2.5, "2.50s"),
            (60.0, "60.0s"),
        ] {
            assert_eq!(percentile(Some(Percentile::About(seconds))), text);
        }
        assert_eq!(percentile(Some(Percentile::Beyond(10.0))), ">10.0s");
        assert_eq!(percentile(None), "-");
        assert_eq!(span(Duration::from_millis(10_049)), "10s");
        assert_eq!(span(Duration::from_millis(2_460)), "2.5s");
    }
}
