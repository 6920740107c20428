// SPDX-License-Identifier: Apache-2.0
//! Text that other processes, files and callers choose, as a part of a message.

/// Whether a character could make a message look like another one: control characters, separators of lines and of paragraphs, and marks of
/// the direction of text.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same text with these characters escaped, as in "\n" and "\u{1b}". All messages and all texts of lines are made by it, so that no
/// name adds a line to them.
pub fn one_line(text: String) -> String {
    if !text.chars().any(is_hidden) {
        return text;
    }
    let mut line = String::with_capacity(2 * text.len());
    for letter in text.chars() {
        if is_hidden(letter) { line.extend(letter.escape_debug()) } else { line.push(letter) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_change_what_a_line_looks_like_are_escaped() {
        let all = "\n\r\t\0\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}";
        assert_eq!(
            one_line(all.to_string()),
            r"\n\r\t\0\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}"
        );
        for text in ["", "Mandant 7 – ü", "u\u{308} \u{200d} '\"\\n", &one_line(all.to_string())] {
            assert_eq!(one_line(text.to_string()), text);
        }
    }
}
