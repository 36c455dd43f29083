//! Says whether a PNG shows a red heart on white, 64 x 64, with the parameters it was made with in its text.
//!
//! `cargo run -p plimsoll-testkit --example check_heart -- heart.png`

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

/// `[height, width, 3]`, row-major.
struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
    text_keys: Vec<String>,
}

fn read(path: &str) -> Result<Picture, Box<dyn std::error::Error>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let mut rgb = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
    let frame = reader.next_frame(&mut rgb)?;
    if frame.color_type != png::ColorType::Rgb || frame.bit_depth != png::BitDepth::Eight {
        return Err("the picture is not 8-bit RGB".into());
    }
    let info = reader.info();
    let latin = info.uncompressed_latin1_text.iter().map(|chunk| chunk.keyword.clone());
    let text_keys = latin.chain(info.utf8_text.iter().map(|chunk| chunk.keyword.clone())).collect();
    Ok(Picture { width: frame.width as usize, height: frame.height as usize, rgb, text_keys })
}

/// What is wrong with the picture, in sentences.
fn faults(picture: &Picture) -> Vec<String> {
    let mut faults = Vec::new();
    if (picture.width, picture.height) != (64, 64) {
        return vec![format!("it has {} x {} pixels", picture.width, picture.height)];
    }
    let pixel = |x: usize, y: usize| -> [u8; 3] {
        let start = (y * picture.width + x) * 3;
        [picture.rgb[start], picture.rgb[start + 1], picture.rgb[start + 2]]
    };
    let is_red = |[r, g, b]: [u8; 3]| r > 180 && g < 120 && b < 140;
    let is_white = |[r, g, b]: [u8; 3]| r > 200 && g > 200 && b > 200;
    for (x, y) in [(32, 32), (20, 24), (44, 24), (32, 48)] {
        if !is_red(pixel(x, y)) {
            faults.push(format!("inside the heart, at {x}, {y}, it is {:?}", pixel(x, y)));
        }
    }
    for (x, y) in [(1, 1), (62, 1), (1, 62), (62, 62), (6, 50), (58, 50)] {
        if !is_white(pixel(x, y)) {
            faults.push(format!("beside the heart, at {x}, {y}, it is {:?}", pixel(x, y)));
        }
    }
    if !picture.text_keys.iter().any(|key| key == "parameters") {
        faults.push(format!("its text has no `parameters`, only {:?}", picture.text_keys));
    }
    faults
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: check_heart PICTURE.png");
        return ExitCode::from(2);
    };
    let faults = read(&path).map_or_else(|error| vec![error.to_string()], |picture| faults(&picture));
    if faults.is_empty() {
        println!("`{path}` is a red heart");
        return ExitCode::SUCCESS;
    }
    eprintln!("`{path}` is no red heart: {}", faults.join("; "));
    ExitCode::FAILURE
}
