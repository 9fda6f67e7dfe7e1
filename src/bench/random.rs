//! Random numbers that a seed decides.
//!
//! The algorithm is written here because runs are compared across versions of this program: the
//! same seed must give the same cluster and the same changes for ever.

/// Sebastiano Vigna's SplitMix64: every seed is as good as any other.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, 0 if that is 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        // Upper 32 bits of a product of 64; the result is below `limit`, so it fits.
        let product = (self.bits() >> 32) * u64::from(limit);
        u32::try_from(product >> 32).unwrap_or_default()
    }

    /// A number from `first` to `last`, both included.
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
