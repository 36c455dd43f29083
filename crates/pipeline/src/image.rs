//! A picture in 8 bits per channel, and how it becomes numbers for a model and comes back.

/// A picture: RGB, 8 bits per channel, rows from the top.
///
/// Always holds: `rgb` has `height * width * 3` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Image {
    /// A picture of `rgb`, `[height, width, 3]`; `None` if there are more or fewer bytes than that.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Option<Self> {
        let byte_count = width.checked_mul(height)?.checked_mul(3)?;
        (rgb.len() == byte_count).then_some(Self { width, height, rgb })
    }

    /// The picture that a VAE decoded: `values` is `[height, width, 3]` in -1 ..= 1, channels last.
    ///
    /// Rounds as diffusers' `VaeImageProcessor`: `(x / 2 + 0.5)` clamped to 0 ..= 1, times 255 in f32, half to even.
    /// What is not a number becomes 0.
    ///
    /// # Panics
    /// If `values` has another length.
    pub fn from_signed(width: usize, height: usize, values: &[f32]) -> Self {
        let level = |value: &f32| ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
        Self::new(width, height, values.iter().map(level).collect()).expect("values are [height, width, 3]")
    }

    /// The picture as a VAE's encoder takes it: `[height, width, 3]` in -1 ..= 1, channels last.
    ///
    /// As diffusers' `VaeImageProcessor`: `2 * (x / 255) - 1` in f32.
    pub fn to_signed(&self) -> Vec<f32> {
        self.rgb.iter().map(|&level| 2.0 * (f32::from(level) / 255.0) - 1.0).collect()
    }

    /// Pixels of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The bytes, `[height, width, 3]`.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From numpy 2.4: `((np.float32(x) / 2 + 0.5).clip(0, 1) * 255).round()`.
    #[test]
    fn rounds_half_to_even_and_clamps() {
        let values: [f32; 9] = [-1.5, -1.0, -0.9960785, 0.0, 0.003_921_6, 0.999, 1.0, 7.0, f32::NAN];
        let image = Image::from_signed(3, 1, &values);
        assert_eq!(image.rgb(), [0, 0, 0, 128, 128, 255, 255, 255, 0]);
    }

    #[test]
    fn every_level_survives_the_way_there_and_back() {
        let levels: Vec<u8> = (0..=255).chain([0, 0]).collect();
        let image = Image::new(86, 1, levels).unwrap();
        let signed = image.to_signed();
        assert_eq!((signed[0], signed[255]), (-1.0, 1.0));
        assert_eq!(Image::from_signed(86, 1, &signed), image);
    }

    #[test]
    fn a_wrong_number_of_bytes_is_no_image() {
        assert_eq!(Image::new(2, 2, vec![0; 11]), None);
        assert_eq!(Image::new(usize::MAX, 2, vec![0; 11]), None);
        assert!(Image::new(2, 2, vec![0; 12]).is_some());
    }
}
