//! Recent times from events to commits.
//!
//! Uses a fixed amount of memory; adding a value allocates nothing.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::buckets;

/// Most slots that are kept: 5 minutes.
const SLOTS: usize = 60;

/// Seconds of one slot.
const SLOT_SECONDS: u64 = 5;

/// Buckets of a slot: four for each power of two microseconds, up to 33 s.
const SLOT_BUCKETS: usize = 96;

/// Recent times.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    /// Newest last; slots without a commit are absent.
    slots: VecDeque<Slot>,
    /// Upper bounds in seconds.
    bounds: Vec<f64>,
    /// Counts of times since the start, one more than bounds.
    counts: Vec<u64>,
}

/// Times within one slot.
#[derive(Clone, Debug)]
struct Slot {
    /// Slot number since the start.
    number: u64,
    counts: [u32; SLOT_BUCKETS],
    longest_us: u64,
}

impl Default for Recent {
    fn default() -> Self {
        let bounds = buckets::fine();
        Self { slots: VecDeque::with_capacity(SLOTS), counts: vec![0; bounds.len() + 1], bounds }
    }
}

impl Recent {
    /// Adds a time from events to their commit, which happened `up` after the start.
    pub(super) fn events_committed(&mut self, took: Duration, up: Duration) {
        let seconds = took.as_secs_f64();
        self.counts[self.bounds.partition_point(|bound| *bound < seconds)] += 1;
        let number = up.as_secs() / SLOT_SECONDS;
        if self.slots.back().is_none_or(|slot| slot.number != number) {
            if self.slots.len() == SLOTS {
                self.slots.pop_front();
            }
            self.slots.push_back(Slot { number, counts: [0; SLOT_BUCKETS], longest_us: 0 });
        }
        if let Some(slot) = self.slots.back_mut() {
            slot.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Returns the times, `up` after the start.
    pub(super) fn latency(&self, up: Duration) -> Value {
        let now = up.as_secs() / SLOT_SECONDS;
        let ago = |slot: &Slot| now.saturating_sub(slot.number);
        let kept = self.slots.iter().filter(|slot| ago(slot) < SLOTS as u64);
        let slots = kept.map(|slot| {
            json!({
                "seconds_ago": ago(slot) * SLOT_SECONDS,
                "count": slot.count(),
                "p50_us": slot.percentile(50),
                "p99_us": slot.percentile(99),
                "max_us": slot.longest_us,
            })
        });
        let bounds = self.bounds.iter().map(|bound| Some((bound * 1e6).round())).chain([None]);
        let buckets = bounds.zip(&self.counts);
        json!({
            "count": self.counts.iter().sum::<u64>(),
            "span_seconds": SLOTS as u64 * SLOT_SECONDS,
            "slots": slots.collect::<Value>(),
            "buckets": buckets
                .map(|(bound, count)| json!({"up_to_us": bound, "count": count}))
                .collect::<Value>(),
        })
    }
}

impl Slot {
    fn add(&mut self, microseconds: u64) {
        let count = &mut self.counts[place(microseconds)];
        *count = count.saturating_add(1);
        self.longest_us = self.longest_us.max(microseconds);
    }

    fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the time in microseconds that `percent` percent do not exceed; up to a quarter too
    /// long.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut passed = 0;
        let reaches = |count: &u32| {
            passed += u64::from(*count);
            passed >= wanted
        };
        let place = self.counts.iter().position(reaches).unwrap_or(SLOT_BUCKETS - 1);
        // The last bucket has no upper bound.
        let end = if place + 1 < SLOT_BUCKETS { end(place) } else { u64::MAX };
        end.min(self.longest_us)
    }
}

/// Returns the bucket of a time.
fn place(microseconds: u64) -> usize {
    let shift = microseconds.max(1).ilog2().saturating_sub(2);
    let place = u64::from(shift) * 4 + (microseconds >> shift);
    usize::try_from(place).unwrap_or(usize::MAX).min(SLOT_BUCKETS - 1)
}

/// Returns the first time after a bucket.
fn end(place: usize) -> u64 {
    let shift = (place / 4).saturating_sub(1);
    ((place - 4 * shift + 1) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_bucket_of_a_quarter_of_its_size() {
        let mut former = 0;
        for time in (0..2_000).chain([10_000, 123_456, 1_000_000, 30_000_000]) {
            let place = place(time);
            assert!(place >= former && time < end(place), "{time}");
            assert!(end(place) <= time + time / 4 + 1, "{time} {}", end(place));
            former = place;
        }
        assert_eq!(place(u64::MAX), SLOT_BUCKETS - 1);
    }

    #[test]
    fn times_are_gathered_by_slot_and_in_one_histogram() {
        let mut recent = Recent::default();
        let up = Duration::from_secs;
        for microseconds in 1..=100 {
            recent.events_committed(Duration::from_micros(microseconds), up(1));
        }
        recent.events_committed(Duration::from_secs(60), up(299));
        let latency = recent.latency(up(299));
        assert_eq!(latency["count"], 101);
        let slot = |place: usize| &latency["slots"][place];
        assert_eq!((&slot(0)["seconds_ago"], &slot(0)["count"]), (&json!(295), &json!(100)));
        assert_eq!((&slot(0)["p50_us"], &slot(0)["p99_us"]), (&json!(56), &json!(100)));
        assert_eq!((&slot(1)["seconds_ago"], &slot(1)["p50_us"]), (&json!(0), &json!(60_000_000)));
        let bucket = |place: usize| &latency["buckets"][place];
        assert_eq!((&bucket(0)["up_to_us"], &bucket(0)["count"]), (&json!(10.0), &json!(10)));
        assert_eq!((&bucket(1)["up_to_us"], &bucket(1)["count"]), (&json!(20.0), &json!(10)));
        assert_eq!((&bucket(19)["up_to_us"], &bucket(19)["count"]), (&json!(null), &json!(1)));
        assert_eq!(recent.latency(up(300))["slots"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut recent = Recent::default();
        for n in 0..1_000 {
            recent.events_committed(Duration::ZERO, Duration::from_secs(5 * n));
        }
        assert_eq!(recent.slots.len(), SLOTS);
        assert_eq!(recent.slots.capacity(), SLOTS);
    }
}
