//! Text from a file, made fit for one line of an error message.

use std::path::Path;

/// As many characters of a hostile name as a message shows.
const CHARS_MAX: usize = 200;

/// `text` with control and other invisible characters escaped (a newline as `\n`), cut off after 200 characters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::new();
    for (idx, c) in text.chars().enumerate() {
        if idx == CHARS_MAX {
            shown.push('…');
            break;
        }
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// [`printable`] for a path, whole: what the user named may be long, and its end says most.
pub(crate) fn printable_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.chars()
        .flat_map(|c| match c {
            '\'' | '"' | '\\' => vec![c],
            _ => c.escape_debug().collect(),
        })
        .collect()
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
