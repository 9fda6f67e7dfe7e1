//! Whether a refused question to a neighbour is to be reported: once, until a whole round had none.
//!
//! In a full neighbour table the kernel refuses every new entry, in each round, while it confirms
//! the others.

/// Refusals of this round and of the rounds before.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    is_in_round: bool,
    is_reported: bool,
}

impl Refusals {
    /// Begins a round.
    pub(super) fn begin_round(&mut self) {
        self.is_reported &= self.is_in_round;
        self.is_in_round = false;
    }

    /// Records a refusal. Returns whether to report it.
    pub(super) fn record(&mut self) -> bool {
        self.is_in_round = true;
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_again_only_after_a_round_without_one() {
        let mut refusals = Refusals::default();
        assert!(refusals.record());
        assert!(!refusals.record());
        refusals.begin_round();
        assert!(!refusals.record());
        refusals.begin_round();
        refusals.begin_round();
        assert!(refusals.record());
    }
}
