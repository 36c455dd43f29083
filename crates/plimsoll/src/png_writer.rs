//! A picture to the bytes of a PNG.

use anyhow::Context;
use plimsoll_pipeline::Image;

/// The PNG of `image` with text chunks (keyword, text).
///
/// Text within Latin-1 goes into `tEXt`, which every reader knows; other text into `iTXt`, which holds UTF-8.
pub(crate) fn encode(image: &Image, chunks: &[(&str, String)]) -> anyhow::Result<Vec<u8>> {
    encode_parts(image, chunks).context("the picture can't be written as PNG")
}

fn encode_parts(image: &Image, chunks: &[(&str, String)]) -> anyhow::Result<Vec<u8>> {
    let mut png = Vec::new();
    let (width, height) = (u32::try_from(image.width())?, u32::try_from(image.height())?);
    let mut encoder = png::Encoder::new(&mut png, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (keyword, text) in chunks {
        let (keyword, text) = ((*keyword).to_owned(), text.clone());
        if text.chars().all(is_plain) {
            encoder.add_text_chunk(keyword, text)?;
        } else {
            encoder.add_itxt_chunk(keyword, text)?;
        }
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image.rgb())?;
    writer.finish()?;
    Ok(png)
}

/// Whether `tEXt` may hold it: Latin-1's printable characters and line feeds.
fn is_plain(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types_of(png: &[u8]) -> Vec<String> {
        let mut types = Vec::new();
        let mut rest = &png[8..];
        while rest.len() >= 12 {
            let size = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            types.push(String::from_utf8(rest[4..8].to_vec()).unwrap());
            rest = &rest[12 + size..];
        }
        types
    }

    #[test]
    fn pixels_and_text_survive() {
        let image = Image::new(2, 1, vec![1, 2, 3, 250, 251, 252]).unwrap();
        let chunks = [("parameters", "café\nSteps: 1".to_owned()), ("plimsoll", "红心 ❤".to_owned())];
        let png = encode(&image, &chunks).unwrap();
        assert_eq!(types_of(&png), ["IHDR", "tEXt", "iTXt", "IDAT", "IEND"]);
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let mut rgb = vec![0; 6];
        reader.next_frame(&mut rgb).unwrap();
        assert_eq!(rgb, image.rgb());
        let info = reader.info();
        assert_eq!(info.uncompressed_latin1_text[0].text, chunks[0].1);
        assert_eq!(info.utf8_text[0].get_text().unwrap(), chunks[1].1);
    }
}
