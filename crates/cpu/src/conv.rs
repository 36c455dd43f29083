//! Two-dimensional convolution as a matrix product that is never laid out.
//!
//! A row of the left matrix is an output pixel, its segments are the kernel's taps: each is the source pixel's
//! channels where they lie, or zeros beyond the border. Stride, dilation, padding on any side and a nearest resize of
//! the input only change which pixel a tap reads.

use plimsoll_device::{ConvShape, DType};

use crate::gemm::{LeftRows, multiply, multiply_scratch_len};
use crate::isa::Isa;
use crate::micro::ZERO_ROW;
use crate::numbers::{Numbers, NumbersMut};
use crate::rows::nearest_source;

/// Convolution; `x` is `[batch, height, width, in_channels]`, `w` packed, `y` `[batch, out height, out width,
/// out_channels]`, all of one dtype; `scratch` has [`conv2d_scratch_len`] numbers.
///
/// # Panics
/// If a length is wrong, or the kernel is larger than the padded input: a bug of the caller.
#[allow(clippy::too_many_arguments)]
pub(crate) fn conv2d(
    isa: Isa,
    threads: usize,
    shape: &ConvShape,
    x: Numbers<'_>,
    w: Numbers<'_>,
    bias: Option<&[f32]>,
    y: NumbersMut<'_>,
    scratch: &mut [f32],
) {
    multiply(isa, threads, &PixelRows::new(shape), shape.out_channels, x, w, bias, y, scratch);
}

/// Scratch numbers that [`conv2d`] needs.
pub(crate) fn conv2d_scratch_len(isa: Isa, threads: usize, shape: &ConvShape, dtype: DType) -> usize {
    multiply_scratch_len(isa, threads, &PixelRows::new(shape), shape.out_channels, dtype)
}

/// The output pixels of a convolution as rows of taps.
struct PixelRows<'a> {
    shape: &'a ConvShape,
    output: [usize; 2],
}

impl<'a> PixelRows<'a> {
    fn new(shape: &'a ConvShape) -> Self {
        let output = shape.output().unwrap_or_else(|| panic!("{shape:?} has no output"));
        Self { shape, output }
    }

    /// The stored row (`axis` 0) or column (`axis` 1) that a kernel position reads, or `None` in the padding.
    #[inline(always)]
    fn source(&self, axis: usize, output: usize, tap: usize) -> Option<usize> {
        let shape = self.shape;
        let padded = output * shape.stride + tap * shape.dilation;
        let resized = padded.wrapping_sub(shape.padding[2 * axis]);
        if resized >= shape.resized[axis] {
            return None;
        }
        if shape.resized[axis] == shape.input[axis] {
            return Some(resized);
        }
        Some(nearest_source(resized, shape.input[axis], shape.resized[axis]))
    }
}

impl LeftRows for PixelRows<'_> {
    fn rows(&self) -> usize {
        self.shape.batch * self.output[0] * self.output[1]
    }

    fn depth(&self) -> usize {
        self.shape.in_channels
    }

    fn segments(&self) -> usize {
        self.shape.kernel[0] * self.shape.kernel[1]
    }

    fn input_len(&self) -> usize {
        self.shape.batch * self.shape.input[0] * self.shape.input[1] * self.shape.in_channels
    }

    #[inline(always)]
    fn fill_offsets(&self, first: usize, row_count: usize, tile_rows: usize, offsets: &mut [u32]) {
        let ([height, width], [out_height, out_width]) = (self.shape.input, self.output);
        let [kernel_height, kernel_width] = self.shape.kernel;
        let channels = self.shape.in_channels;
        let mut image = first / (out_height * out_width);
        let mut y = first / out_width % out_height;
        let mut x = first % out_width;
        for row in 0..row_count {
            let mut entry = row / tile_rows * tile_rows * self.segments() + row % tile_rows;
            for ky in 0..kernel_height {
                let line = self.source(0, y, ky).map(|source| (image * height + source) * width);
                for kx in 0..kernel_width {
                    offsets[entry] = match (line, self.source(1, x, kx)) {
                        (Some(line), Some(source)) => ((line + source) * channels) as u32,
                        _ => ZERO_ROW,
                    };
                    entry += tile_rows;
                }
            }
            x += 1;
            if x == out_width {
                (x, y) = (0, y + 1);
            }
            if y == out_height {
                (y, image) = (0, image + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::{self, Owned, Seeded, in_pool, isas, scratch};

    fn check(isa: Isa, threads: usize, shape: &ConvShape, dtype: DType, with_bias: bool) -> Owned {
        let taps = shape.kernel[0] * shape.kernel[1];
        let [height, width] = shape.output().expect("an output");
        let mut seeded = Seeded::new((height * 31 + width) as u32);
        let x = seeded.numbers(shape.batch * shape.input[0] * shape.input[1] * shape.in_channels);
        let w = seeded.numbers(shape.out_channels * shape.in_channels * taps);
        let bias = seeded.numbers(shape.out_channels);
        let bias = with_bias.then_some(&bias[..]);
        let packed = Owned::packed(isa, dtype, &w, shape.out_channels, shape.in_channels, taps);
        let x_owned = Owned::new(dtype, &x);
        let mut y = Owned::new(dtype, &vec![f32::NAN; shape.batch * height * width * shape.out_channels]);
        let mut scratch = scratch(conv2d_scratch_len(isa, threads, shape, dtype));
        in_pool(threads, || {
            conv2d(isa, threads, shape, x_owned.numbers(), packed.numbers(), bias, y.numbers_mut(), &mut scratch);
        });
        naive::assert_close(&y, &naive::conv2d(shape, &x, &w, bias), &format!("{isa} {dtype} {shape:?}"));
        y
    }

    /// A shape with everything that a convolution can have, about as often as not.
    fn any_shape(seeded: &mut Seeded) -> ConvShape {
        loop {
            let input = [seeded.size(1..=12), seeded.size(1..=12)];
            let resized = match seeded.size(0..=2) {
                0 => input.map(|size| size * 2),
                1 => input.map(|size| seeded.size(1..=2 * size)),
                _ => input,
            };
            let shape = ConvShape {
                batch: seeded.size(1..=2),
                input,
                resized,
                in_channels: seeded.size(1..=40),
                out_channels: seeded.size(1..=40),
                kernel: [seeded.size(1..=4), seeded.size(1..=4)],
                stride: seeded.size(1..=3),
                dilation: seeded.size(1..=2),
                padding: [seeded.size(0..=3), seeded.size(0..=3), seeded.size(0..=3), seeded.size(0..=3)],
            };
            if shape.output().is_some() {
                return shape;
            }
        }
    }

    #[test]
    fn convolutions_of_all_kinds_agree_with_plain_loops() {
        let mut seeded = Seeded::new(2);
        for case in 0..120 {
            let shape = any_shape(&mut seeded);
            for isa in isas() {
                for dtype in [DType::F32, DType::BF16] {
                    check(isa, 1, &shape, dtype, case % 2 == 0);
                }
            }
        }
    }

    fn square(size: usize, in_channels: usize, out_channels: usize) -> ConvShape {
        ConvShape {
            batch: 1,
            input: [size; 2],
            resized: [size; 2],
            in_channels,
            out_channels,
            kernel: [3, 3],
            stride: 1,
            dilation: 1,
            padding: [1; 4],
        }
    }

    #[test]
    fn many_blocks_agree_with_plain_loops_and_any_number_of_threads_gives_the_same_bits() {
        for isa in isas() {
            for dtype in [DType::F32, DType::BF16] {
                for shape in [square(20, 64, 48), square(24, 4, 64), square(9, 130, 70), square(17, 16, 3)] {
                    let bits = check(isa, 1, &shape, dtype, true).bits();
                    for threads in [2, 3] {
                        assert_eq!(check(isa, threads, &shape, dtype, true).bits(), bits, "{isa} {dtype} {shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn stride_two_with_padding_at_the_end_only_agrees_with_plain_loops() {
        for isa in isas() {
            let shape = ConvShape { stride: 2, padding: [0, 1, 0, 1], ..square(16, 33, 20) };
            check(isa, 1, &shape, DType::F32, true);
        }
    }
}
