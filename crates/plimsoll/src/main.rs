//! Plimsoll.
fn main() {}
