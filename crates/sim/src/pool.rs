//! The allocator: reuses freed memory at once, most recently freed first.
//!
//! That is the hardest allocator for a program that frees too early: the next owner gets the very same bytes. Free
//! memory is kept in pieces as it was freed; one is split when it is larger than needed. When no single piece is large
//! enough, neighbours are merged; when that does not help either, several pieces serve together, as in CUDA's
//! stream-ordered pool, which maps pages anew. So an allocation fails only if there are too few free bytes.
//!
//! Each free piece remembers the point at which it was freed; whoever allocates it is put behind that point, as the pool
//! does when the memory was freed on another queue.

use std::ops::Range;

use crate::clock::Stamp;

/// Neighbours are merged when there are more free pieces than this, or than twice as many as were left by the last merge:
/// that keeps the search short, and merging rare where nothing can be merged.
const PIECES_MAX: usize = 128;

/// The free addresses of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The one freed last comes last.
    free: Vec<FreePiece>,
    free_bytes: u64,
    pieces_max: usize,
}

#[derive(Debug)]
struct FreePiece {
    addresses: Range<u64>,
    /// None for memory never used.
    freed: Option<Stamp>,
}

/// Memory taken from the pool.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Where it is; usually one piece.
    pub(crate) extents: Vec<Range<u64>>,
    /// The point behind which it may be used.
    pub(crate) freed: Option<Stamp>,
}

impl Pool {
    /// All addresses below `capacity`, free.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            free: vec![FreePiece { addresses: 0..capacity, freed: None }],
            free_bytes: capacity,
            pieces_max: PIECES_MAX,
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// `size` bytes; none if there are too few.
    pub(crate) fn take(&mut self, size: u64) -> Option<Taken> {
        if size > self.free_bytes {
            return None;
        }
        self.free_bytes -= size;
        let mut taken = Taken::default();
        if self.take_in_one(size, &mut taken) {
            return Some(taken);
        }
        self.merge_neighbours();
        if self.take_in_one(size, &mut taken) {
            return Some(taken);
        }
        let mut missing = size;
        while missing > 0 {
            let piece = self.free.last().expect("the free bytes were counted");
            let len = (piece.addresses.end - piece.addresses.start).min(missing);
            self.split_off(self.free.len() - 1, len, &mut taken);
            missing -= len;
        }
        Some(taken)
    }

    /// Takes memory back, free from the point `freed` on.
    pub(crate) fn give_back(&mut self, extents: &[Range<u64>], freed: &Stamp) {
        for addresses in extents.iter().rev() {
            self.free_bytes += addresses.end - addresses.start;
            self.free.push(FreePiece { addresses: addresses.clone(), freed: Some(freed.clone()) });
        }
        if self.free.len() > self.pieces_max {
            self.merge_neighbours();
        }
    }

    fn take_in_one(&mut self, size: u64, taken: &mut Taken) -> bool {
        if size == 0 {
            return true;
        }
        let fits = |piece: &FreePiece| piece.addresses.end - piece.addresses.start >= size;
        let Some(idx) = self.free.iter().rposition(fits) else { return false };
        self.split_off(idx, size, taken);
        true
    }

    /// Moves the first `len` bytes of a free piece over.
    fn split_off(&mut self, idx: usize, len: u64, taken: &mut Taken) {
        let piece = &mut self.free[idx];
        let start = piece.addresses.start;
        piece.addresses.start += len;
        taken.extents.push(start..start + len);
        if let Some(freed) = &piece.freed {
            taken.freed.get_or_insert_default().join(freed);
        }
        if piece.addresses.is_empty() {
            self.free.remove(idx);
        }
    }

    /// Joins pieces that touch. The result counts as freed when the last of them was.
    fn merge_neighbours(&mut self) {
        let mut pieces: Vec<(usize, FreePiece)> = self.free.drain(..).enumerate().collect();
        pieces.sort_by_key(|(_, piece)| piece.addresses.start);
        let mut merged: Vec<(usize, FreePiece)> = Vec::new();
        for (recency, piece) in pieces {
            match merged.last_mut().filter(|(_, last)| last.addresses.end == piece.addresses.start) {
                Some((last_recency, last)) => {
                    *last_recency = (*last_recency).max(recency);
                    last.addresses.end = piece.addresses.end;
                    if let Some(freed) = &piece.freed {
                        last.freed.get_or_insert_default().join(freed);
                    }
                }
                None => merged.push((recency, piece)),
            }
        }
        merged.sort_by_key(|&(recency, _)| recency);
        self.free = merged.into_iter().map(|(_, piece)| piece).collect();
        self.pieces_max = PIECES_MAX.max(2 * self.free.len());
    }
}

// A list of one piece is what is meant.
#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn take(pool: &mut Pool, size: u64) -> Vec<Range<u64>> {
        pool.take(size).unwrap().extents
    }

    #[test]
    fn what_was_freed_last_is_taken_first() {
        let mut pool = Pool::new(1000);
        let (a, b, c) = (take(&mut pool, 100), take(&mut pool, 100), take(&mut pool, 100));
        assert_eq!((&a[..], &b[..], &c[..]), (&[0..100][..], &[100..200][..], &[200..300][..]));
        pool.give_back(&c, &Stamp::default());
        pool.give_back(&a, &Stamp::default());
        assert_eq!(take(&mut pool, 64), [0..64]);
        assert_eq!(take(&mut pool, 64), [200..264]);
        assert_eq!(take(&mut pool, 36), [64..100]);
        assert_eq!(take(&mut pool, 36), [264..300]);
    }

    #[test]
    fn neighbours_are_merged_and_scattered_pieces_serve_together() {
        let mut pool = Pool::new(400);
        let blocks: Vec<_> = (0..4).map(|_| take(&mut pool, 100)).collect();
        pool.give_back(&blocks[1], &Stamp::default());
        pool.give_back(&blocks[0], &Stamp::default());
        assert_eq!(take(&mut pool, 200), [0..200]);
        pool.give_back(&[0..200], &Stamp::default());
        pool.give_back(&blocks[3], &Stamp::default());
        assert_eq!(take(&mut pool, 250), [300..400, 0..150]);
        assert_eq!(pool.free_bytes(), 50);
        assert!(pool.take(51).is_none());
        assert_eq!(take(&mut pool, 0), []);
    }

    #[test]
    fn many_small_pieces_stay_few() {
        let mut pool = Pool::new(1 << 20);
        let blocks: Vec<_> = (0..1000).map(|_| take(&mut pool, 64)).collect();
        blocks.iter().for_each(|block| pool.give_back(block, &Stamp::default()));
        assert!(pool.free.len() <= PIECES_MAX);
        assert_eq!(pool.free_bytes(), 1 << 20);
        assert_eq!(take(&mut pool, 1 << 20), [0..1 << 20]);
    }
}
