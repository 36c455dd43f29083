//! Comparison within a tolerance.

/// Asserts that every number of `actual` is at most `absolute` away from its counterpart in `expected`. Equal
/// infinities are close; a NaN is close to nothing.
///
/// # Panics
/// If a number is farther away, with the worst one's index and both values, and how many others there are; or if the
/// lengths differ.
#[track_caller]
pub fn assert_close(name: &str, actual: &[f32], expected: &[f32], absolute: f32) {
    if let Some(complaint) = complaint(name, actual, expected, absolute) {
        panic!("{complaint}");
    }
}

/// What is wrong with `actual`, if anything.
fn complaint(name: &str, actual: &[f32], expected: &[f32], absolute: f32) -> Option<String> {
    if actual.len() != expected.len() {
        return Some(format!("{name}: {} numbers, expected {}", actual.len(), expected.len()));
    }
    let mut far_count = 0;
    let mut worst: Option<(usize, f64)> = None;
    for (idx, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let distance = distance(a, e);
        if distance > f64::from(absolute) {
            far_count += 1;
            if worst.is_none_or(|(_, farthest)| distance > farthest) {
                worst = Some((idx, distance));
            }
        }
    }
    let (idx, distance) = worst?;
    Some(format!(
        "{name}: {far_count} of {} numbers are more than {absolute:e} off; the worst, at {idx}, is {} instead of {} \
         (off by {distance:e})",
        actual.len(),
        actual[idx],
        expected[idx],
    ))
}

/// Infinite where a NaN is on either side, or an infinity on one.
fn distance(a: f32, b: f32) -> f64 {
    let distance = (f64::from(a) - f64::from(b)).abs();
    match distance.is_nan() {
        true if a == b => 0.0,
        true => f64::INFINITY,
        false => distance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_worst_number() {
        assert_eq!(
            complaint("unet.out", &[1.0, 2.5, 3.0, 4.25], &[1.0, 2.0, 3.0, 4.0], 0.125).unwrap(),
            "unet.out: 2 of 4 numbers are more than 1.25e-1 off; the worst, at 1, is 2.5 instead of 2 (off by 5e-1)"
        );
    }

    #[test]
    fn the_tolerance_itself_is_close() {
        assert_close("edge", &[1.0, -1.0, f32::INFINITY], &[1.25, -1.25, f32::INFINITY], 0.25);
        assert!(complaint("edge", &[1.0], &[1.2500001], 0.25).is_some());
    }

    #[test]
    fn nan_and_lone_infinities_are_never_close() {
        for (a, e) in [(f32::NAN, 0.0), (0.0, f32::NAN), (f32::NAN, f32::NAN), (f32::INFINITY, f32::NEG_INFINITY)] {
            assert!(complaint("x", &[a], &[e], f32::MAX).is_some(), "{a} {e}");
        }
    }

    #[test]
    fn lengths_must_agree() {
        assert_eq!(complaint("x", &[1.0], &[], 1.0).unwrap(), "x: 1 numbers, expected 0");
    }
}
