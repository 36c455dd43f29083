//! Seeds from a seed and a place: numpy's `SeedSequence` (after O'Neill 2015, "Developing a seed_seq alternative").
//!
//! Gives the 32-bit words of `SeedSequence(entropy, spawn_key=.., pool_size=24).generate_state(n)`.

const POOL_LEN: usize = 24;
const SHIFT: u32 = 16;

/// The first word for that entropy and spawn key; an empty key is the root's.
pub(super) fn first_word(entropy: u64, spawn_key: &[u64]) -> u32 {
    let mut words = words_of(entropy);
    if !spawn_key.is_empty() {
        words.resize(POOL_LEN, 0);
    }
    words.extend(spawn_key.iter().flat_map(|&key| words_of(key)));
    first_output(mixed_pool(&words)[0])
}

/// The 32-bit words of a number, lowest first, without leading zeros; 0 is one word.
fn words_of(number: u64) -> Vec<u32> {
    let (low, high) = (number as u32, (number >> 32) as u32);
    if high == 0 { vec![low] } else { vec![low, high] }
}

/// Hashes with a constant that changes with every use.
struct Hasher {
    constant: u32,
}

impl Hasher {
    fn hash(&mut self, word: u32) -> u32 {
        let word = word ^ self.constant;
        self.constant = self.constant.wrapping_mul(0x931e_8875);
        let word = word.wrapping_mul(self.constant);
        word ^ (word >> SHIFT)
    }
}

fn mix(x: u32, y: u32) -> u32 {
    let mixed = 0xca01_f9ddu32.wrapping_mul(x).wrapping_sub(0x4973_f715u32.wrapping_mul(y));
    mixed ^ (mixed >> SHIFT)
}

fn mixed_pool(words: &[u32]) -> [u32; POOL_LEN] {
    let mut hasher = Hasher { constant: 0x43b0_d7e5 };
    let mut pool: [u32; POOL_LEN] = std::array::from_fn(|idx| hasher.hash(words.get(idx).copied().unwrap_or(0)));
    for source in 0..POOL_LEN {
        for target in (0..POOL_LEN).filter(|&target| target != source) {
            pool[target] = mix(pool[target], hasher.hash(pool[source]));
        }
    }
    for &word in words.iter().skip(POOL_LEN) {
        for target in &mut pool {
            *target = mix(*target, hasher.hash(word));
        }
    }
    pool
}

fn first_output(pool_word: u32) -> u32 {
    const CONSTANT: u32 = 0x8b51_f9dd;
    let word = (pool_word ^ CONSTANT).wrapping_mul(CONSTANT.wrapping_mul(0x58f3_8ded));
    word ^ (word >> SHIFT)
}
