//! Random numbers from a seed.
//!
//! The algorithm is implemented here because runs are compared across versions of this program: the
//! same seed must always result in the same cluster and the same changes.

/// Sebastiano Vigna's SplitMix64: all seeds are equally good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a sequence that depends only on `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        // The upper 32 bits of a 64-bit product; they are below `limit`, so they fit.
        let product = (self.bits() >> 32) * u64::from(limit);
        u32::try_from(product >> 32).unwrap_or_default()
    }

    /// Returns a number from `first` to `last`, both included.
    pub fn between(&mut self, first: u32, last: u32) -> u32 {
        first + self.below(last - first + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_algorithm() {
        // The first outputs of splitmix64.c for seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.bits(), random.bits()], expected);
    }

    #[test]
    fn numbers_are_below_the_limit_and_all_of_them_occur() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[random.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|times| (100..300).contains(times)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(3, 3), 3);
    }
}
