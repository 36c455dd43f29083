//! Text from a file, made fit for one line of an error message.

use std::path::Path;

/// As many characters of a hostile name as a message shows.
const CHARS_MAX: usize = 200;

/// `text` with control and other invisible characters escaped (a newline as `\n`), cut off after 200 characters.
pub fn printable(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        None => escaped(text),
        Some((end, _)) => escaped(&text[..end]) + "…",
    }
}

/// [`printable`] for a path, whole: what the user named may be long, and its end says most.
pub fn printable_path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// `char::escape_debug`, but for quotes and backslashes, which hide nothing.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_could_forge_a_line_or_hide() {
        assert_eq!(printable("a\nerror: b\u{1b}[31m\u{202e}\0"), r"a\nerror: b\u{1b}[31m\u{202e}\0");
        assert_eq!(printable("it's \"plain\" ä 心"), "it's \"plain\" ä 心");
    }

    #[test]
    fn cuts_off_a_long_name() {
        assert_eq!(printable(&"x".repeat(5000)), format!("{}…", "x".repeat(200)));
    }
}
