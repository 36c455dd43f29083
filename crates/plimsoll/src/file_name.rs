//! A file's name out of a prompt.

/// The most bytes that the prompt's part of a name has.
const SLUG_BYTES_MAX: usize = 60;

/// A name for a picture of `prompt` drawn with `seed`, without extension: `red-heart-42`.
///
/// Only letters and digits of the prompt are kept, in lower case, whatever their script; all between them becomes one
/// `-`. So the name has no separators, no leading dot and no device's name, however the prompt was meant.
pub(crate) fn stem(prompt: &str, seed: u64) -> String {
    let slug = slug(prompt);
    if slug.is_empty() { format!("picture-{seed}") } else { format!("{slug}-{seed}") }
}

fn slug(prompt: &str) -> String {
    let mut slug = String::new();
    let words = prompt.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in words {
        let word = word.to_lowercase();
        let dash = if slug.is_empty() { "" } else { "-" };
        if slug.len() + dash.len() + word.len() > SLUG_BYTES_MAX {
            if slug.is_empty() {
                let mut end = SLUG_BYTES_MAX;
                while !word.is_char_boundary(end) {
                    end -= 1;
                }
                slug.push_str(&word[..end]);
            }
            break;
        }
        slug.push_str(dash);
        slug.push_str(&word);
    }
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_slugs() {
        for (prompt, name) in [
            ("red heart", "red-heart-42"),
            ("  Red,  HEART! ", "red-heart-42"),
            ("../../etc/passwd", "etc-passwd-42"),
            ("C:\\con", "c-con-42"),
            (".hidden\u{0}\n", "hidden-42"),
            ("", "picture-42"),
            ("\u{2764}\u{fe0f}", "picture-42"),
            ("красное сердце", "красное-сердце-42"),
            ("Straße", "straße-42"),
        ] {
            assert_eq!(stem(prompt, 42), name, "{prompt:?}");
        }
    }

    #[test]
    fn long_prompts_are_cut_between_words_and_characters() {
        assert_eq!(slug(&"heart ".repeat(100)), "heart-heart-heart-heart-heart-heart-heart-heart-heart-heart");
        assert_eq!(slug(&"a".repeat(100)), "a".repeat(60));
        assert_eq!(slug(&"心".repeat(100)), "心".repeat(20));
        assert_eq!(slug(&format!("a{}", "心".repeat(100))), format!("a{}", "心".repeat(19)));
    }
}
