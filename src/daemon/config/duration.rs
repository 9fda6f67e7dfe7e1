//! Durations in Go's notation, as in kube-proxy's flags and file.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Error: the text is not an accepted duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 1s, 1m30s or 500ms, or 0")]
pub struct DurationError(String);

/// Parses a duration like Go's `time.ParseDuration`, but rejects a negative one.
///
/// # Errors
/// The text has a number without a unit, an unknown unit, or exceeds about 292 years.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let time = signed(text).and_then(|time| u64::try_from(time).ok());
    time.map(Duration::from_nanos).ok_or_else(|| DurationError(text.to_owned()))
}

/// Parses a duration like Go's `time.ParseDuration`, in nanoseconds.
pub(super) fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(size) => nanoseconds(size)?.checked_neg(),
        None => nanoseconds(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Formats a duration like Go's `Duration.String`: `1h0m0s`, `1.5s`, `500ms`.
pub fn text(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let small = [("ms", 1_000_000), ("µs", 1_000), ("ns", 1)];
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    if nanoseconds < SECOND {
        let unit = small.into_iter().find(|(_, length)| nanoseconds >= *length);
        return unit.map_or_else(String::new, |(unit, length)| decimal(nanoseconds, length) + unit);
    }
    let (hours, minutes) = (nanoseconds / SECOND / 3600, nanoseconds / SECOND / 60 % 60);
    let seconds = decimal(nanoseconds % (60 * SECOND), SECOND);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Checks that a duration is in a range; the error is the value and the expectation.
pub(super) fn within(
    time: Duration,
    range: RangeInclusive<Duration>,
) -> Result<Duration, Vec<String>> {
    if range.contains(&time) {
        return Ok(time);
    }
    let [shown, least, most] = [time, *range.start(), *range.end()].map(text);
    Err(vec![format!("is {shown}; expected {least} to {most}")])
}

/// Formats `value` in units of `unit`, a power of ten, without trailing zeros.
fn decimal(value: u128, unit: u128) -> String {
    let places = unit.ilog10() as usize;
    let decimals = format!("{:0places$}", value % unit);
    let text = format!("{}.{decimals}", value / unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

fn nanoseconds(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let (mut total, mut rest) = part(text)?;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        (total, rest) = (total.checked_add(part)?, after);
    }
    // Go counts nanoseconds in an `int64`.
    i64::try_from(total).ok()
}

/// Returns the nanoseconds of the first number with its unit, rounded down, and the text after it.
fn part(text: &str) -> Option<(u128, &str)> {
    /// Further decimals are less than a nanosecond, even in hours.
    const DECIMALS: usize = 12;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(end)?;
    let (unit, rest) =
        UNITS.iter().find_map(|(name, unit)| rest.strip_prefix(name).map(|rest| (*unit, rest)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let shown = fraction.get(..DECIMALS).unwrap_or(fraction);
    // Neither two points nor no digit at all are a number.
    let digits: u128 = format!("{whole}{shown}").parse().ok()?;
    let is_number = !fraction.contains('.');
    let scale = 10_u128.pow(u32::try_from(shown.len()).ok()?);
    is_number.then_some((digits.checked_mul(unit)? / scale, rest))
}

/// Units in nanoseconds; a unit stands before those that are a prefix of it.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_by_go() {
        for (nanoseconds, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (500_000_000, "500ms"),
            (1_500_000_000, "1.5s"),
            (10_000_000_000, "10s"),
            (90_000_000_000, "1m30s"),
            (86_400_000_000_000, "24h0m0s"),
        ] {
            let duration = Duration::from_nanos(nanoseconds);
            assert_eq!(text(duration), expected);
            assert_eq!(parse(expected), Ok(duration));
        }
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("1s", 1_000),
            ("+1s", 1_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("1h1m1s1ms", 3_661_001),
            ("2000us", 2),
            ("2000\u{b5}s", 2),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("0.1234567891s"), Ok(Duration::from_nanos(123_456_789)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "1", "s", ".s", "1.2.3s", "-1s", "1 s", "1d", "1s1", "99999999999h", "é"]
        {
            assert_eq!(parse(text), Err(DurationError(text.to_owned())));
        }
    }
}
