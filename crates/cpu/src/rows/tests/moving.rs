use half::bf16;
use plimsoll_device::ResizeShape;

use super::super::resize::nearest_source;
use super::super::{concat, gather, pixel_shuffle, resize_nearest};
use super::{from_bf16, to_bf16};
use crate::numbers::{Numbers, NumbersMut};

/// Numbers that bf16 holds exactly, all different up to 256.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|idx| (idx % 256) as f32).collect()
}

/// Runs `op` in both formats and gives the f32 result, after asserting that the other is the same.
fn in_both(x: &[f32], len: usize, op: impl Fn(Numbers<'_>, NumbersMut<'_>)) -> Vec<f32> {
    let (mut y, mut y_bf16) = (vec![f32::NAN; len], vec![bf16::NAN; len]);
    op(Numbers::F32(x), NumbersMut::F32(&mut y));
    op(Numbers::Bf16(&to_bf16(x)), NumbersMut::Bf16(&mut y_bf16));
    assert_eq!(y, from_bf16(&y_bf16));
    y
}

/// The expected lists are what torch 2.10's `interpolate(mode="nearest")` gives; in the last, exact arithmetic would
/// have 13 for the second 12.
#[test]
fn the_nearest_source_is_torchs() {
    let sources = |input: usize, output: usize| -> Vec<usize> {
        (0..output).map(|output_idx| nearest_source(output_idx, input, output)).collect()
    };
    assert_eq!(sources(3, 6), [0, 0, 1, 1, 2, 2]);
    assert_eq!(sources(3, 5), [0, 0, 1, 1, 2]);
    assert_eq!(sources(7, 13), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]);
    assert_eq!(sources(26, 22), [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24]);
    assert_eq!(sources(2, 82).iter().filter(|source| **source == 0).count(), 42);
}

#[test]
fn resize_copies_the_nearest_pixel() {
    let sizes = [
        ([3, 5], [6, 10]),
        ([4, 3], [7, 5]),
        ([5, 6], [2, 3]),
        ([1, 1], [3, 2]),
        ([26, 4], [22, 8]),
        ([40, 64], [80, 128]),
    ];
    for (input, output) in sizes {
        for (batch, channels) in [(1, 1), (2, 3), (1, 4), (2, 8)] {
            let shape = ResizeShape { batch, input, output, channels };
            let x = ramp(batch * input[0] * input[1] * channels);
            let y = in_both(&x, batch * output[0] * output[1] * channels, |x, y| resize_nearest(&shape, x, y));
            for (idx, found) in y.iter().enumerate() {
                let (channel, pixel) = (idx % channels, idx / channels);
                let (column, row, image) =
                    (pixel % output[1], pixel / output[1] % output[0], pixel / output[1] / output[0]);
                let (row, column) =
                    (nearest_source(row, input[0], output[0]), nearest_source(column, input[1], output[1]));
                let expected = x[((image * input[0] + row) * input[1] + column) * channels + channel];
                assert_eq!(*found, expected, "{shape:?}: [{idx}]");
            }
        }
    }
}

#[test]
fn pixel_shuffle_spreads_channels_over_a_square() {
    for (batch, [height, width], channels, factor) in
        [(1, [1, 1], 1, 2), (2, [3, 5], 3, 4), (1, [4, 1], 1, 3), (2, [2, 3], 5, 1), (1, [40, 33], 3, 4)]
    {
        let shape = ResizeShape { batch, input: [height, width], output: [height * factor, width * factor], channels };
        let squares = factor * factor;
        let x = ramp(batch * height * width * channels * squares);
        let y = in_both(&x, x.len(), |x, y| pixel_shuffle(&shape, x, y));
        for (idx, x) in x.iter().enumerate() {
            let (in_channel, pixel) = (idx % (channels * squares), idx / (channels * squares));
            let (channel, dy, dx) = (in_channel / squares, in_channel % squares / factor, in_channel % factor);
            let (column, row) = (pixel % width, pixel / width);
            let to = ((row * factor + dy) * width * factor + column * factor + dx) * channels + channel;
            assert_eq!(y[to], *x, "{shape:?}: from [{idx}] to [{to}]");
        }
    }
}

#[test]
fn concat_joins_rows() {
    for (rows, columns) in [(0, [1, 2, 3]), (3, [0, 2, 1]), (2, [1, 0, 0]), (5, [3, 1, 4]), (700, [33, 20, 7])] {
        let total: usize = columns.iter().sum();
        let parts = columns.map(|columns| ramp(rows * columns));
        let parts_bf16 = [0, 1, 2].map(|part| to_bf16(&parts[part]));
        let mut y = vec![f32::NAN; rows * total];
        let mut y_bf16 = vec![bf16::NAN; rows * total];
        concat(rows, &[0, 1, 2].map(|part| (columns[part], Numbers::F32(&parts[part]))), NumbersMut::F32(&mut y));
        concat(
            rows,
            &[0, 1, 2].map(|part| (columns[part], Numbers::Bf16(&parts_bf16[part]))),
            NumbersMut::Bf16(&mut y_bf16),
        );
        let expected: Vec<f32> = (0..rows)
            .flat_map(|row| (0..3).flat_map(move |part| (0..columns[part]).map(move |column| (row, part, column))))
            .map(|(row, part, column)| parts[part][row * columns[part] + column])
            .collect();
        assert_eq!(y, expected);
        assert_eq!(from_bf16(&y_bf16), expected);
    }
}

#[test]
fn gather_copies_the_named_rows() {
    let table = ramp(7 * 5);
    let row_idxs = [6u32, 0, 3, 3, 1];
    let y = in_both(&table, 25, |table, y| gather(5, &row_idxs, table, y));
    for (row, row_idx) in row_idxs.iter().enumerate() {
        assert_eq!(y[row * 5..][..5], table[*row_idx as usize * 5..][..5]);
    }
    assert!(in_both(&table, 0, |table, y| gather(5, &[], table, y)).is_empty());
}

#[test]
#[should_panic]
fn gather_panics_on_an_index_out_of_range() {
    gather(2, &[2], Numbers::F32(&[1.0, 2.0, 3.0, 4.0]), NumbersMut::F32(&mut [0.0; 2]));
}
