//! Copies of whole rows: lookup and concatenation.

use super::number::{Number, any_format, same_format};
use super::spread;
use crate::numbers::{Numbers, NumbersMut};

/// `y[i] = table[row_idxs[i]]` for rows of `columns` numbers.
///
/// # Panics
/// If an index is not below the rows of `table`.
pub(crate) fn gather(columns: usize, row_idxs: &[u32], table: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("gather", table, y => {
        assert_eq!(y.len(), row_idxs.len() * columns, "gather: numbers of the output");
        spread::over_rows(y, columns, |first_row, y| {
            for (row_idx, y) in row_idxs[first_row..].iter().zip(y.chunks_exact_mut(columns)) {
                y.copy_from_slice(&table[*row_idx as usize * columns..][..columns]);
            }
        });
    })
}

/// `y[r] = [parts[0][r], parts[1][r], ..]` for `rows` rows; each part is given with its columns.
pub(crate) fn concat(rows: usize, parts: &[(usize, Numbers<'_>)], y: NumbersMut<'_>) {
    let columns: usize = parts.iter().map(|(columns, _)| columns).sum();
    for (part_columns, part) in parts {
        assert_eq!(part.len(), rows * part_columns, "concat: numbers of a part");
    }
    any_format!(y => {
        assert_eq!(y.len(), rows * columns, "concat: numbers of the output");
        spread::over_rows(y, columns, |first_row, y| {
            let mut first_column = 0;
            for (part_columns, part) in parts {
                copy_columns(y, columns, first_column, *part, first_row, *part_columns);
                first_column += part_columns;
            }
        });
    })
}

fn copy_columns<N: Number>(
    y: &mut [N],
    columns: usize,
    first_column: usize,
    part: Numbers<'_>,
    first_row: usize,
    part_columns: usize,
) {
    if part_columns == 0 {
        return;
    }
    let part = N::slice(part).expect("concat: parts and output have one format");
    let part = &part[first_row * part_columns..];
    for (y, x) in y.chunks_exact_mut(columns).zip(part.chunks_exact(part_columns)) {
        y[first_column..][..part_columns].copy_from_slice(x);
    }
}
