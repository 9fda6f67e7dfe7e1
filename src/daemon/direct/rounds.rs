//! The order in which neighbours are asked again: in rounds, spread over the ticks of a round.
//!
//! A round has at most 512 neighbours. If there are more, the next round goes on where the last one
//! ended, so that each has its turn.

use std::collections::{BTreeSet, VecDeque};

use super::known::Place;

/// Ticks of a round.
pub(super) const TICKS: u32 = 16;

/// Most neighbours of a round. The kernel asks each with one frame, and with up to three more if it
/// does not answer.
const MAX_PROBES: usize = 512;

/// Neighbours to ask in this round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    left: VecDeque<Place>,
    /// Neighbours of a tick.
    share: usize,
    ticks_left: u32,
    /// Last neighbour of this round.
    last: Option<Place>,
}

impl Rounds {
    /// Begins a round over `places`.
    pub(super) fn begin(&mut self, places: &BTreeSet<Place>) {
        let last = self.last;
        let ahead = places.iter().filter(|place| Some(**place) > last);
        let behind = places.iter().filter(|place| Some(**place) <= last);
        self.left = ahead.chain(behind).take(MAX_PROBES).copied().collect();
        self.last = self.left.back().copied();
        self.share = self.left.len().div_ceil(TICKS as usize);
        self.ticks_left = TICKS;
    }

    /// Returns whether the next tick belongs to another round.
    pub(super) fn is_over(&self) -> bool {
        self.ticks_left == 0
    }

    /// Returns the neighbours to ask in the next tick.
    pub(super) fn next_share(&mut self) -> Vec<Place> {
        self.ticks_left = self.ticks_left.saturating_sub(1);
        let share = self.share.min(self.left.len());
        self.left.drain(..share).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn places(count: u32) -> BTreeSet<Place> {
        (1..=count).map(|number| (Ipv4Addr::from_bits(number).into(), 7)).collect()
    }

    fn round(rounds: &mut Rounds, places: &BTreeSet<Place>) -> Vec<Vec<Place>> {
        assert!(rounds.is_over());
        rounds.begin(places);
        (0..TICKS).map(|_| rounds.next_share()).collect()
    }

    #[test]
    fn a_round_asks_each_neighbour_once_in_even_shares() {
        for count in [0, 1, 15, 16, 17, 100, 512] {
            let places = places(count);
            let shares = round(&mut Rounds::default(), &places);
            let most = places.len().div_ceil(TICKS as usize);
            assert!(shares.iter().all(|share| share.len() <= most), "{count}");
            assert!(shares.concat().iter().eq(&places), "{count}");
        }
    }

    #[test]
    fn of_too_many_neighbours_each_has_its_turn() {
        let places = places(1300);
        let mut rounds = Rounds::default();
        let asked: Vec<_> = (0..3).map(|_| round(&mut rounds, &places).concat()).collect();
        assert!(asked.iter().all(|round| round.len() == MAX_PROBES));
        let all: BTreeSet<_> = asked.concat().into_iter().collect();
        assert_eq!(all, places);
    }

    #[test]
    fn a_round_goes_on_when_the_last_neighbour_is_no_longer_requested() {
        let mut rounds = Rounds::default();
        round(&mut rounds, &places(100));
        let fewer = places(3);
        assert!(round(&mut rounds, &fewer).concat().iter().eq(&fewer));
    }
}
