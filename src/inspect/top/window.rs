//! Values of the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// Span of rates and percentiles, unless two samples are further apart.
const WINDOW: Duration = Duration::from_secs(10);

/// Most values that are kept: samples may be a tenth of a second apart.
const VALUES: usize = 128;

/// Values with their times, the oldest some [`WINDOW`] before the newest.
#[derive(Debug)]
pub(super) struct Window<T> {
    values: VecDeque<(Duration, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { values: VecDeque::new() }
    }
}

impl<T> Window<T> {
    /// Adds the value at the time `at`.
    pub(super) fn add(&mut self, at: Duration, value: T) {
        self.values.push_back((at, value));
        while self.values.len() > VALUES
            || self.values.get(1).is_some_and(|second| at.saturating_sub(second.0) >= WINDOW)
        {
            self.values.pop_front();
        }
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// Returns the newest value.
    pub(super) fn newest(&self) -> Option<&T> {
        self.values.back().map(|(_, value)| value)
    }

    /// Returns the oldest and the newest value, and the time between them; `None` with fewer than
    /// two.
    pub(super) fn ends(&self) -> Option<(&T, &T, Duration)> {
        let ((start, oldest), (end, newest)) = (self.values.front()?, self.values.back()?);
        let span = end.checked_sub(*start).filter(|span| !span.is_zero())?;
        Some((oldest, newest, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(window: &Window<u64>) -> Option<(u64, u64, u64)> {
        window.ends().map(|(oldest, newest, span)| (*oldest, *newest, span.as_secs()))
    }

    #[test]
    fn the_oldest_value_is_as_old_as_the_window() {
        let mut window = Window::default();
        let mut seen = Vec::new();
        for second in [0, 4, 8, 12, 16, 60] {
            window.add(Duration::from_secs(second), second);
            seen.push(ends(&window));
        }
        let expected =
            [None, Some((0, 4, 4)), Some((0, 8, 8)), Some((0, 12, 12)), Some((4, 16, 12))];
        assert_eq!(seen[..5], expected);
        assert_eq!(seen[5], Some((16, 60, 44)));
        window.clear();
        assert_eq!(ends(&window), None);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut window = Window::default();
        (0..10_000).for_each(|n| window.add(Duration::from_millis(n), n));
        assert_eq!(window.values.len(), VALUES);
    }
}
