//! What is learnt from run to run.

mod common;

use common::Bench;
use fs_err as fs;

/// Draws the same picture; what was said on stderr, and the peak.
fn draw(bench: &Bench, picture: &str) -> (String, u64, Vec<u8>) {
    let args = ["generate", "red heart", "--steps", "2", "--seed", "1", "--threads", "1", "--json", "--out", picture];
    let outcome = bench.run(&args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let warnings: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("warning")).collect();
    (warnings.join("\n"), json["peak_bytes"].as_u64().unwrap(), fs::read(bench.path(picture)).unwrap())
}

#[test]
fn activation_peaks_are_kept_and_agree_with_the_rehearsal() {
    let bench = Bench::new();
    let (warnings, peak, picture) = draw(&bench, "a.png");
    assert_eq!(warnings, "");
    let file = bench.cache().join("activation_peaks.json");
    let learnt = fs::read_to_string(&file).unwrap();
    let entries: Vec<serde_json::Value> = serde_json::from_str(&learnt).unwrap();
    assert_eq!(entries.len(), 3, "text encoder, unet, vae: {learnt}");
    let (warnings, again, second) = draw(&bench, "b.png");
    assert_eq!((warnings.as_str(), again), ("", peak));
    assert!(picture == second);
    assert_eq!(fs::read_to_string(&file).unwrap(), learnt, "nothing new was learnt");
    let refused = bench.run(&["generate", "red heart", "--steps", "2", "--threads", "1", "--budget", "1"]);
    fs::remove_file(&file).unwrap();
    let unlearnt = bench.run(&["generate", "red heart", "--steps", "2", "--threads", "1", "--budget", "1"]);
    assert_eq!(refused.stderr, unlearnt.stderr, "on the CPU a rehearsal tells the exact peak already");
}

#[test]
fn a_damaged_cache_costs_one_warning_and_no_picture() {
    let bench = Bench::new();
    let (_, _, picture) = draw(&bench, "a.png");
    let file = bench.cache().join("activation_peaks.json");
    fs::write(&file, b"\xff\xfe not json").unwrap();
    let (warnings, _, second) = draw(&bench, "b.png");
    assert_eq!(warnings.lines().count(), 1);
    assert!(
        warnings.ends_with("is no file of activation peaks and is ignored; it is a cache and can be deleted"),
        "{warnings}"
    );
    assert!(picture == second);
    assert_eq!(draw(&bench, "c.png").0, "", "the next run finds a good file");
}
