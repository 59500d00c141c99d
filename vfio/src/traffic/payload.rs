//! What the messages say.

/// A message: its iteration and what it says.
pub type Message = (u64, Vec<u8>);

/// The payload of an iteration: splitmix64 from a state that seed and iteration give.
pub fn payload(seed: u64, iteration: u64, size: usize) -> Vec<u8> {
    let mut state = seed ^ iteration.wrapping_mul(0xd134_2543_de82_ef95);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_differ_by_iteration_and_by_seed_and_fill_their_size() {
        let mut seen = std::collections::HashSet::new();
        for (seed, iteration) in (0..4).flat_map(|s| (0..500).map(move |i| (s, i))) {
            let bytes = payload(seed, iteration, 21);
            assert_eq!(bytes.len(), 21);
            assert_eq!(bytes, payload(seed, iteration, 21));
            assert!(seen.insert(bytes), "seed {seed}, iteration {iteration}");
        }
    }
}
