//! A program built without its demo model.
#![cfg(not(feature = "demo-model"))]

mod common;

use common::{Bench, repository};

#[test]
fn the_model_must_be_named() {
    let outcome = Bench::new().run(&["generate", "red heart"]);
    assert_eq!(outcome.code, 2);
    assert_eq!(
        outcome.stderr,
        "error: this program was built without its demo model; name a model folder with --model DIR\n"
    );
}

#[test]
fn a_named_model_is_drawn_with() {
    let bench = Bench::new();
    let model = repository().join("assets/emoji64");
    bench.generate(&["--model", model.to_str().unwrap(), "--out", "a.png"]);
    assert_eq!(bench.names(), ["a.png"]);
    let outcome = bench.run(&["generate", "red heart", "--model", model.to_str().unwrap(), "--upscale"]);
    assert_eq!(outcome.code, 2);
    assert_eq!(outcome.stderr, "error: this program was built without its upscaler; leave out --upscale\n");
}
