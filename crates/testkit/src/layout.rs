//! From torch's image layout to the device's and back.

/// `[batch, channels, height, width]` to `[batch, height, width, channels]`. `shape` is that of `values`.
///
/// # Panics
/// If the shape has another number of elements.
#[track_caller]
pub fn nchw_to_nhwc<T: Copy>(values: &[T], shape: [usize; 4]) -> Vec<T> {
    let [batch, channels, height, width] = shape;
    swap_inner(values, batch, channels, height * width)
}

/// `[batch, height, width, channels]` to `[batch, channels, height, width]`. `shape` is that of `values`.
///
/// # Panics
/// If the shape has another number of elements.
#[track_caller]
pub fn nhwc_to_nchw<T: Copy>(values: &[T], shape: [usize; 4]) -> Vec<T> {
    let [batch, height, width, channels] = shape;
    swap_inner(values, batch, height * width, channels)
}

/// `[batch, rows, columns]` to `[batch, columns, rows]`.
#[track_caller]
fn swap_inner<T: Copy>(values: &[T], batch: usize, rows: usize, columns: usize) -> Vec<T> {
    assert_eq!(values.len(), batch * rows * columns, "{batch} x {rows} x {columns} numbers");
    let mut swapped = Vec::with_capacity(values.len());
    for image in 0..batch {
        for column in 0..columns {
            swapped.extend((0..rows).map(|row| values[(image * rows + row) * columns + column]));
        }
    }
    swapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_go_last_and_come_back() {
        // Two images of two channels, one row of three pixels; the digits are image, channel, pixel.
        let nchw = [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112];
        let nhwc = nchw_to_nhwc(&nchw, [2, 2, 1, 3]);
        assert_eq!(nhwc, [0, 10, 1, 11, 2, 12, 100, 110, 101, 111, 102, 112]);
        assert_eq!(nhwc_to_nchw(&nhwc, [2, 1, 3, 2]), nchw);
    }
}
