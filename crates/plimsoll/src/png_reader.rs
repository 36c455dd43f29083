//! A PNG file to a picture. Files are hostile: their size and what they promise are checked before memory is taken.

use std::io::{Cursor, ErrorKind};
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use plimsoll_pipeline::{Image, SIDE_MAX};
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use crate::regular_file;

/// The most pixels that are read: a square of the largest side that can be drawn would take 805 MB.
const PIXELS_MAX: usize = 1 << 26;
/// The most bytes of a file: those of the most pixels, 16 bits per channel, hardly compressed.
const FILE_BYTES_MAX: u64 = 1 << 30;
const TOO_LARGE: &str = "it takes more memory than there is for it; make it smaller";
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Reads a picture: 8 or 16 bits (or fewer, or a palette), gray or color, transparent parts on white.
pub(crate) fn read(path: &Path) -> anyhow::Result<Image> {
    let bytes = regular_file::read(path, FILE_BYTES_MAX, "check --image")?;
    decode(&bytes).with_context(|| format!("`{}` can't be used as start picture", path.display()))
}

fn decode(bytes: &[u8]) -> anyhow::Result<Image> {
    if !bytes.starts_with(SIGNATURE) {
        bail!("it is {}, not PNG; convert it to PNG", kind(bytes));
    }
    let limits = Limits { bytes: PIXELS_MAX * 8 };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    let info = decoder.read_header_info().map_err(in_plain_words)?;
    let (width, height) = (info.width as usize, info.height as usize);
    ensure!(
        width <= SIDE_MAX && height <= SIDE_MAX && width * height <= PIXELS_MAX,
        "it has {width} x {height} pixels, and at most {SIDE_MAX} a side and {PIXELS_MAX} in all are read; make it smaller"
    );
    let mut reader = decoder.read_info().map_err(in_plain_words)?;
    let byte_count = reader.output_buffer_size().context(TOO_LARGE)?;
    let mut samples = with_capacity(byte_count)?;
    samples.resize(byte_count, 0);
    let frame = reader.next_frame(&mut samples).map_err(in_plain_words)?;
    samples.truncate(frame.buffer_size());
    let rgb = to_rgb(&samples, frame.color_type, frame.bit_depth)?;
    Image::new(width, height, rgb).context("its rows do not have the promised pixels; export it again")
}

/// What the decoder found, without its inner names.
fn in_plain_words(error: DecodingError) -> anyhow::Error {
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow!("it is cut off; export it again")
        }
        DecodingError::LimitsExceeded => anyhow!(TOO_LARGE),
        DecodingError::IoError(_) | DecodingError::Format(_) | DecodingError::Parameter(_) => {
            anyhow!("it is damaged, or no valid PNG; export it again")
        }
    }
}

fn with_capacity(byte_count: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(byte_count).map_err(|_| anyhow!(TOO_LARGE))?;
    Ok(bytes)
}

fn to_rgb(samples: &[u8], color: ColorType, depth: BitDepth) -> anyhow::Result<Vec<u8>> {
    let (sample_bytes, most) = match depth {
        BitDepth::Eight => (1, 0xff),
        BitDepth::Sixteen => (2, 0xffff),
        other => bail!("it has the bit depth {} after expansion, which no PNG should have", other as u8),
    };
    let (color_count, has_alpha) = match color {
        ColorType::Grayscale => (1, false),
        ColorType::GrayscaleAlpha => (1, true),
        ColorType::Rgb => (3, false),
        ColorType::Rgba => (3, true),
        ColorType::Indexed => bail!("its palette can't be expanded"),
    };
    let pixel_bytes = (color_count + usize::from(has_alpha)) * sample_bytes;
    let mut rgb = with_capacity(samples.len() / pixel_bytes * 3)?;
    for pixel in samples.chunks_exact(pixel_bytes) {
        let value = |idx: usize| {
            let bytes = &pixel[idx * sample_bytes..][..sample_bytes];
            bytes.iter().fold(0, |value: u64, &byte| value << 8 | u64::from(byte))
        };
        let alpha = if has_alpha { value(color_count) } else { most };
        // A gray's one value serves all three.
        rgb.extend([0, 1, 2].map(|idx: usize| on_white(value(idx.min(color_count - 1)), alpha, most)));
    }
    Ok(rgb)
}

/// `value` of `most` with the opacity `alpha` of `most`, over white, as a level of 255, rounded to the nearest.
fn on_white(value: u64, alpha: u64, most: u64) -> u8 {
    let sum = value * alpha + most * (most - alpha);
    let whole = most * most;
    ((sum * 255 + whole / 2) / whole) as u8
}

/// What a file that is no PNG is.
fn kind(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => "a JPEG",
        [b'G', b'I', b'F', b'8', ..] => "a GIF",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "a WebP picture",
        [b'B', b'M', ..] => "a BMP picture",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "a TIFF picture",
        [] => "empty",
        _ => "another kind of file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(color: ColorType, depth: BitDepth, size: (u32, u32), samples: &[u8], palette: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if let Some(palette) = palette {
            encoder.set_palette(palette.to_vec());
        }
        encoder.write_header().unwrap().write_image_data(samples).unwrap();
        bytes
    }

    fn check(color: ColorType, depth: BitDepth, samples: &[u8], expected: [u8; 6]) {
        let image = decode(&png(color, depth, (2, 1), samples, None)).unwrap();
        assert_eq!((image.width(), image.height(), image.rgb()), (2, 1, &expected[..]), "{color:?} {depth:?}");
    }

    #[test]
    fn reads_gray_color_and_transparency_in_8_and_16_bits() {
        use BitDepth::{Eight, Sixteen};
        check(ColorType::Grayscale, Eight, &[7, 200], [7, 7, 7, 200, 200, 200]);
        check(ColorType::Grayscale, Sixteen, &[7, 7, 0xc8, 0x80], [7, 7, 7, 200, 200, 200]);
        check(ColorType::Grayscale, BitDepth::One, &[0b1000_0000], [255, 255, 255, 0, 0, 0]);
        check(ColorType::GrayscaleAlpha, Eight, &[0, 255, 0, 51], [0, 0, 0, 204, 204, 204]);
        check(ColorType::Rgb, Eight, &[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]);
        check(ColorType::Rgb, Sixteen, &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], [1, 2, 3, 4, 5, 6]);
        check(ColorType::Rgba, Eight, &[10, 20, 30, 255, 10, 20, 30, 0], [10, 20, 30, 255, 255, 255]);
        let half = [0, 0, 0xff, 0xff, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        check(ColorType::Rgba, Sixteen, &half, [127, 255, 127, 0, 0, 0]);
    }

    #[test]
    fn reads_a_palette() {
        let bytes = png(ColorType::Indexed, BitDepth::Eight, (2, 1), &[1, 0], Some(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(decode(&bytes).unwrap().rgb(), [4, 5, 6, 1, 2, 3]);
    }

    #[test]
    fn refuses_other_formats_and_damaged_files() {
        let line = |bytes: &[u8]| format!("{:#}", decode(bytes).unwrap_err());
        assert_eq!(line(b"\xff\xd8\xff\xe0"), "it is a JPEG, not PNG; convert it to PNG");
        assert_eq!(line(b""), "it is empty, not PNG; convert it to PNG");
        assert_eq!(line(b"<svg>"), "it is another kind of file, not PNG; convert it to PNG");
        let whole = png(ColorType::Rgb, BitDepth::Eight, (16, 16), &[7; 768], None);
        for len in [SIGNATURE.len(), 20, whole.len() / 2, whole.len() - 13] {
            assert!(line(&whole[..len]).ends_with(|c: char| c.is_alphabetic()), "{len}");
        }
        for idx in SIGNATURE.len()..whole.len() {
            let mut damaged = whole.clone();
            damaged[idx] ^= 0x55;
            if let Err(error) = decode(&damaged) {
                let line = format!("{error:#}");
                assert!(line.contains("; ") && !line.contains(['{', '(']), "byte {idx}: {line}");
            }
        }
        let mut huge = whole.clone();
        huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(decode(&huge).is_err());
    }

    #[test]
    fn a_huge_picture_is_refused_by_its_header() {
        let mut bytes = Vec::new();
        let encoder = png::Encoder::new(&mut bytes, 40_000, 40_000);
        drop(encoder.write_header().unwrap());
        let line = format!("{:#}", decode(&bytes).unwrap_err());
        assert_eq!(
            line,
            "it has 40000 x 40000 pixels, and at most 16384 a side and 67108864 in all are read; make it smaller"
        );
    }
}
