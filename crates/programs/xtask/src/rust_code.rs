//! Rust source reduced to code: without comments, strings, and tests.

/// The source with comments, strings and characters blanked out; lines stay where they are.
pub(crate) fn without_text(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = text_end(bytes, at);
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8(out).expect("only whole comments and strings become blanks")
}

/// Where the comment, string or character that begins at `at` ends; `at` itself if none begins there.
fn text_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let in_word = at > 0 && is_word(bytes[at - 1]);
    match rest[0] {
        b'"' => string_end(bytes, at + 1),
        b'r' if !in_word || bytes[at - 1] == b'b' => raw_string_end(bytes, at),
        b'\'' => char_end(bytes, at),
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_u32, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn raw_string_end(bytes: &[u8], start: usize) -> usize {
    let hashes = bytes[start + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return start;
    }
    let close: Vec<u8> = [b'"'].into_iter().chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..].windows(close.len()).position(|w| w == close);
    length.map_or(bytes.len(), |length| open + 1 + length + close.len())
}

/// A character ends in a quote; a lifetime does not.
fn char_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start + 1) {
        Some(b'\\') => {
            let from = (start + 3).min(bytes.len());
            bytes[from..].iter().position(|&b| b == b'\'').map_or(bytes.len(), |length| from + length + 1)
        }
        Some(&first) => {
            let width = match first {
                0xF0.. => 4,
                0xE0.. => 3,
                0xC0.. => 2,
                _ => 1,
            };
            let close = start + 1 + width;
            if bytes.get(close) == Some(&b'\'') { close + 1 } else { start }
        }
        None => start,
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The code up to a trailing `#[cfg(test)] mod … {`, which by custom ends a file.
pub(crate) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let at = from + found;
        let after = code[at + "#[cfg(test)]".len()..].trim_start();
        let opens = after.starts_with("mod ") && after.find('{') < after.find(';').or(Some(usize::MAX));
        if opens && after.contains('{') {
            return &code[..at];
        }
        from = at + 1;
    }
    code
}

/// The lines, counted from 1, in which `name` stands as a whole path or word.
pub(crate) fn lines_with(code: &str, name: &str) -> Vec<usize> {
    let whole = |line: &str, at: usize| {
        let before = line[..at].bytes().next_back();
        let after = line[at + name.len()..].bytes().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    let has = |line: &str| line.match_indices(name).any(|(at, _)| whole(line, at));
    (1..).zip(code.lines()).filter(|(_, line)| has(line)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_blank_and_code_stays() {
        let source = concat!(
            "let a = \"unsafe \\\" unsafe\"; // unsafe\n",
            "/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe \" unsafe\"#;\n",
            "let c: &'static str = b\"unsafe\"; let d = '\"'; unsafe { e('\\'') }; let f = 'é'; for_r\"x\";\n",
            "/// unsafe\nfn g<'a>() {}\n",
        );
        let code = without_text(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert_eq!(lines_with(&code, "unsafe"), [3]);
        assert!(code.contains("let a =") && code.contains("fn g<'a>() {}") && code.contains("&'static str"));
    }

    #[test]
    fn words_are_whole_and_tests_are_left_out() {
        assert_eq!(lines_with("unsafe_code\nmy_unsafe\nan unsafe word", "unsafe"), [3]);
        let code =
            "fn a() {}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn helper() {}\n#[cfg(test)]\nmod tests {\n std::fs }";
        assert!(without_tests(code).contains("helper") && !without_tests(code).contains("std::fs"));
    }
}
