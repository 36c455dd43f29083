//! The one source of chance.

/// A stream of pseudo-random numbers: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The stream that `number` begins.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// A stream of its own for `purpose`: what is drawn from one does not shift another.
    pub fn derive(&self, purpose: u64) -> Self {
        Self(mix(self.0 ^ mix(purpose.wrapping_add(GOLDEN_GAMMA))))
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// A number in `[0, 1)`.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `end`, or 0 if `end` is. Its bias is below `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True with this probability. Draws one number whatever it is.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of splitmix64: a bijection that spreads every bit over all others.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published reference values for seed 1234567 (Vigna's splitmix64.c).
    #[test]
    fn draws_the_reference_sequence() {
        let mut seed = Seed::new(1_234_567);
        let drawn = [(); 5].map(|()| seed.next_u64());
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, reference);
    }

    #[test]
    fn draws_stay_in_range() {
        let mut seed = Seed::new(0);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&seed.fraction()));
            assert!(seed.below(7) < 7);
        }
        assert_eq!(seed.below(0), 0);
        assert!(!seed.chance(0.0) && seed.chance(1.0));
    }
}
