//! Changes of an image's size that only move numbers.

use plimsoll_device::ResizeShape;

use super::number::same_format;
use super::spread;
use crate::numbers::{Numbers, NumbersMut};

/// Nearest resize: see [`nearest_source`].
pub(crate) fn resize_nearest(shape: &ResizeShape, x: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("resize_nearest", x, y => resize_rows(shape, x, y))
}

/// torch's `pixel_shuffle` in channels-last: input channel `c * factor^2 + dy * factor + dx` of a pixel becomes channel
/// `c` of the pixel `(dy, dx)` of its square.
pub(crate) fn pixel_shuffle(shape: &ResizeShape, x: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("pixel_shuffle", x, y => shuffle_rows(shape, x, y))
}

/// The row (or column) of the input that row `output_idx` of the output is a copy of, as torch's
/// `interpolate(mode="nearest")` has it: in single precision, which for a few uneven ratios is one less than
/// `floor(output_idx * input / output)` in exact arithmetic.
pub(crate) fn nearest_source(output_idx: usize, input: usize, output: usize) -> usize {
    let ratio = input as f32 / output as f32;
    ((output_idx as f32 * ratio) as usize).min(input - 1)
}

fn resize_rows<T: Copy + Send + Sync>(shape: &ResizeShape, x: &[T], y: &mut [T]) {
    let ResizeShape { batch, input: [in_height, in_width], output: [height, width], channels } = *shape;
    assert_eq!(x.len(), batch * in_height * in_width * channels, "resize_nearest: numbers of the input");
    assert_eq!(y.len(), batch * height * width * channels, "resize_nearest: numbers of the output");
    let (in_row_len, row_len) = (in_width * channels, width * channels);
    spread::over_rows(y, row_len, |first_row, rows| {
        let mut source_before = None;
        for row in 0..rows.len() / row_len {
            let (image, out_y) = ((first_row + row) / height, (first_row + row) % height);
            let source = image * in_height + nearest_source(out_y, in_height, height);
            if source_before == Some(source) {
                rows.copy_within((row - 1) * row_len..row * row_len, row * row_len);
            } else {
                let x = &x[source * in_row_len..][..in_row_len];
                widen_row(x, in_width, channels, &mut rows[row * row_len..][..row_len]);
            }
            source_before = Some(source);
        }
    });
}

fn widen_row<T: Copy>(x: &[T], in_width: usize, channels: usize, y: &mut [T]) {
    let width = y.len() / channels;
    for (out_x, pixel) in y.chunks_exact_mut(channels).enumerate() {
        let source = nearest_source(out_x, in_width, width);
        pixel.copy_from_slice(&x[source * channels..][..channels]);
    }
}

fn shuffle_rows<T: Copy + Send + Sync>(shape: &ResizeShape, x: &[T], y: &mut [T]) {
    let ResizeShape { batch, input: [in_height, in_width], output: [height, width], channels } = *shape;
    let factor = height.checked_div(in_height).unwrap_or(1);
    assert_eq!([height, width], [in_height * factor, in_width * factor], "pixel_shuffle: sizes of {shape:?}");
    let in_channels = channels * factor * factor;
    assert_eq!(x.len(), batch * in_height * in_width * in_channels, "pixel_shuffle: numbers of the input");
    assert_eq!(y.len(), batch * height * width * channels, "pixel_shuffle: numbers of the output");
    let (in_row_len, row_len) = (in_width * in_channels, width * channels);
    spread::over_rows(y, row_len, |first_row, rows| {
        for (row, y) in rows.chunks_exact_mut(row_len).enumerate() {
            // The images' rows follow one another, and an image's height is a multiple of the factor.
            let (source, dy) = ((first_row + row) / factor, (first_row + row) % factor);
            let x = &x[source * in_row_len..][..in_row_len];
            for (x, y) in x.chunks_exact(in_channels).zip(y.chunks_exact_mut(factor * channels)) {
                for (dx, y) in y.chunks_exact_mut(channels).enumerate() {
                    for (x, y) in x[dy * factor + dx..].iter().step_by(factor * factor).zip(y) {
                        *y = *x;
                    }
                }
            }
        }
    });
}
