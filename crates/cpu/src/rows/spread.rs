//! Spreads work over the threads of the current rayon pool.
//!
//! The bounds of a piece depend on the shape alone, never on the number of threads.

use rayon::prelude::*;

/// Numbers in a piece, about: less is not worth another thread.
pub(super) const PIECE_LEN: usize = 32 * 1024;

/// Rows of `row_len` numbers in a piece, at least one.
pub(super) fn rows_per_piece(row_len: usize) -> usize {
    (PIECE_LEN / row_len.max(1)).max(1)
}

/// Calls `work(first_row, rows)` for pieces of `y` that are whole rows of `row_len` numbers.
pub(super) fn over_rows<T: Send>(y: &mut [T], row_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let piece_rows = rows_per_piece(row_len);
    over_pieces(y, piece_rows * row_len, |piece, rows| work(piece * piece_rows, rows));
}

/// Calls `work(piece_idx, piece)` for pieces of `piece_len` numbers of `y`; the last may be shorter.
pub(super) fn over_pieces<T: Send>(y: &mut [T], piece_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if y.is_empty() {
    } else if y.len() <= piece_len {
        work(0, y);
    } else {
        y.par_chunks_mut(piece_len).enumerate().for_each(|(piece_idx, piece)| work(piece_idx, piece));
    }
}
