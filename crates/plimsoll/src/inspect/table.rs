//! A model's facts as text for people.

use std::fmt::Write;

use super::facts::{ComponentFacts, ModelFacts, WeightFacts};

/// A heading, and a paragraph for each component.
pub(super) fn render(facts: &ModelFacts) -> String {
    let mut text = match &facts.class {
        Some(class) => format!("{}: {}\n", printable(&facts.path), printable(class)),
        None => format!("{}\n", printable(&facts.path)),
    };
    for component in &facts.components {
        text.push_str(&paragraph(component));
    }
    text
}

fn paragraph(component: &ComponentFacts) -> String {
    let class = component.class.as_deref().map(printable).unwrap_or_default();
    let heading = format!("\n{}  {class}", printable(&component.name));
    let mut text = format!("{}\n", heading.trim_end());
    if let Some(weights) = &component.weights {
        write_weights(&mut text, weights).expect("strings take all text");
    }
    text
}

fn write_weights(text: &mut String, weights: &WeightFacts) -> std::fmt::Result {
    let parameters = grouped(weights.parameter_count);
    writeln!(text, "  {parameters} parameters in {} tensors, {} units", weights.tensor_count, weights.unit_count)?;
    for (dtype, bytes) in &weights.stored_bytes {
        writeln!(text, "  stored    {bytes:>12}  {dtype}")?;
    }
    writeln!(text, "  as f32    {:>12}", weights.f32_bytes)?;
    writeln!(text, "  as bf16   {:>12}  (vectors stay f32)", weights.bf16_bytes)?;
    if !weights.largest_units.is_empty() {
        writeln!(text, "  largest units")?;
    }
    for unit in &weights.largest_units {
        let shapes: Vec<String> =
            unit.shapes.iter().map(|(name, shape)| format!("{} {shape:?}", printable(name))).collect();
        writeln!(text, "    {:>12}  {}  {}", unit.stored_bytes, printable(&unit.name), shapes.join(" "))?;
    }
    Ok(())
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Names come from files: nothing in them may steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_digits() {
        let shown = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
