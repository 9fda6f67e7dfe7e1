//! Numbers of endpoint lists, reused only when no packet can carry them any more.
//!
//! Numbers are assigned in turn, so a free one is used again as late as possible: after all others
//! of its kind. Even where almost all are taken, a freed number is not used for two commits.

use ahash::HashSet;

/// Numbers from `first` to `last`.
#[derive(Debug)]
pub(crate) struct Numbers {
    first: u32,
    last: u32,
    next: u32,
    /// Numbers freed since the last commit, and those freed before it. The next transaction is made
    /// while one is in flight, so the last commit may be of a transaction made before they were
    /// freed.
    resting: [HashSet<u32>; 2],
}

impl Numbers {
    pub(crate) fn new(first: u32, last: u32) -> Self {
        Self { first, last, next: first, resting: Default::default() }
    }

    /// Returns a number that is not `taken`; `None` if all are.
    pub(crate) fn give(&mut self, taken: impl Fn(u32) -> bool) -> Option<u32> {
        let in_turn = (self.next..=self.last).chain(self.first..self.next);
        let rests = |number: &u32| self.resting.iter().any(|resting| resting.contains(number));
        let mut free = in_turn.filter(|number| !rests(number) && !taken(*number));
        let number = free.next()?;
        self.next = if number == self.last { self.first } else { number + 1 };
        Some(number)
    }

    /// Frees a number. It is not used again for two commits.
    pub(crate) fn free(&mut self, number: u32) {
        self.resting[0].insert(number);
    }

    /// Allows the use of the numbers that were freed two commits ago.
    pub(crate) fn end_rest(&mut self) {
        let [last, before] = &mut self.resting;
        std::mem::swap(last, before);
        last.clear();
    }

    /// Continues after the highest number found in the kernel.
    pub(crate) fn adopt(&mut self, found: impl Iterator<Item = u32>) {
        self.resting = Default::default();
        let after = found.max().map_or(self.next, |highest| highest.saturating_add(1));
        if after > self.next && after <= self.last {
            self.next = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(u32) -> bool = |_| false;

    #[test]
    fn numbers_go_round_and_skip_those_that_are_taken() {
        let mut numbers = Numbers::new(1, 4);
        let given: Vec<_> = (0..6).map(|_| numbers.give(|number| number == 3)).collect();
        assert_eq!(given, [1, 2, 4, 1, 2, 4].map(Some));
        assert_eq!(numbers.give(|_| true), None);
    }

    #[test]
    fn a_freed_number_rests_for_two_commits_even_if_no_other_is_left() {
        let mut numbers = Numbers::new(1, 2);
        numbers.free(1);
        for _ in 0..2 {
            assert_eq!(numbers.give(|number| number == 2), None);
            numbers.end_rest();
        }
        assert_eq!(numbers.give(|number| number == 2), Some(1));
    }

    #[test]
    fn numbers_found_in_the_kernel_are_passed_over() {
        let mut numbers = Numbers::new(1, 100);
        numbers.adopt([3, 17, 5].into_iter());
        assert_eq!(numbers.give(NONE), Some(18));
        numbers.adopt([100].into_iter());
        assert_eq!(numbers.give(NONE), Some(19));
    }
}
