//! Reads Rust sources, as far as the boundary checks need: the code without comments, strings and
//! unit tests, and the paths in it.

/// Returns the code of a file. Comments, the contents of strings and the unit tests at its end are
/// blank.
pub(super) fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (skipped, shown) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), "")
        } else if rest.starts_with("/*") {
            (block_comment(rest), "")
        } else if let Some(length) = raw_string(rest) {
            (length, "\"\"")
        } else if first == '"' {
            (string(rest), "\"\"")
        } else if let Some(length) = character(rest) {
            (length, "' '")
        } else {
            let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let length = word.max(first.len_utf8());
            (length, &rest[..length])
        };
        code.push_str(shown);
        rest = &rest[skipped..];
    }
    match code.find("\n#[cfg(test)]\nmod ") {
        Some(tests) => code[..tests].to_owned(),
        None => code,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = text[at..].find(['/', '*']) {
        let here = &text[at + found..];
        at += found + 1;
        if here.starts_with("/*") {
            depth += 1;
            at += 1;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 1;
            if depth == 0 {
                return at;
            }
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == '"' {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let marks = after.find(|c| c != '#')?;
    let body = after[marks..].strip_prefix('"')?;
    let end = format!("\"{}", &after[..marks]);
    let begin = text.len() - body.len();
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(begin + length)
}

/// Returns the length of a character literal, or `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        let end = body[2..].find('\'')?;
        return Some(1 + 2 + end + 1);
    }
    let after = &body[first.len_utf8()..];
    after.starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

/// A path in the code: its segments, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodePath {
    pub(super) segments: Vec<String>,
    pub(super) kind: PathKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    /// A private import.
    Use,
    /// An import that is visible outside the module.
    ReExport,
    /// Any other place.
    Inline,
}

/// Returns all paths that have at least two segments or are imported.
pub(super) fn paths_in(code: &str) -> Vec<CodePath> {
    let tokens = tokens_of(code);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
            let kind = if public {
                PathKind::ReExport
            } else {
                PathKind::Use
            };
            let end = tokens[at..].iter().position(|token| *token == ";");
            let end = end.map_or(tokens.len(), |found| at + found);
            let mut found = Vec::new();
            tree(&tokens[at + 1..end], &[], &mut found);
            paths.extend(
                found
                    .into_iter()
                    .map(|segments| CodePath { segments, kind }),
            );
            at = end;
        } else if is_name(tokens[at]) && (at == 0 || tokens[at - 1] != "::") {
            let mut segments = vec![tokens[at].to_owned()];
            while at + 2 < tokens.len() && tokens[at + 1] == "::" && is_name(tokens[at + 2]) {
                at += 2;
                segments.push(tokens[at].to_owned());
            }
            if segments.len() > 1 {
                let kind = PathKind::Inline;
                paths.push(CodePath { segments, kind });
            }
        }
        at += 1;
    }
    paths
}

/// Collects the paths of an import tree such as `a::{b, c::d as e, self}`.
fn tree(tokens: &[&str], prefix: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            "{" => {
                let end = closing(&tokens[at..]) + at;
                for part in split(&tokens[at + 1..end]) {
                    tree(part, &path, found);
                }
                return;
            }
            "as" => break,
            "::" => {}
            "self" if !path.is_empty() => {}
            segment => path.push(segment.to_owned()),
        }
        at += 1;
    }
    if path.len() > prefix.len() || tokens.first() == Some(&"self") {
        found.push(path);
    }
}

/// Returns the position of the bracket that closes the first bracket.
fn closing(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Returns the parts between the outermost commas.
fn split<'a, 'b>(tokens: &'a [&'b str]) -> Vec<&'a [&'b str]> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[begin..]);
    parts
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the tokens: names, double colons, and every other character except white space.
pub(super) fn tokens_of(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        let paths = paths_in(code).into_iter();
        paths
            .map(|path| format!("{:?} {}", path.kind, path.segments.join("::")))
            .collect()
    }

    #[test]
    fn comments_strings_and_unit_tests_are_not_code() {
        let source = "//! super::a\nlet x = \"super::b\"; /* super::c /* */ */\nlet y = r#\"super::d\"#;\n\
                      let z: &'static str = '\"'.x('\\'', \"\\\"super::e\");\nsuper::f();\n\
                      #[cfg(test)]\nmod tests { super::g(); }\n";
        assert_eq!(paths(&code_of(source)), ["Inline super::f"]);
    }

    #[test]
    fn trees_of_imports_are_taken_apart() {
        let code = "use super::{a, b::{self, C}, d::*, e as f};\npub(crate) use self::g::H;\n\
                    let x = crate::engine::i::J::new();";
        assert_eq!(
            paths(code),
            [
                "Use super::a",
                "Use super::b",
                "Use super::b::C",
                "Use super::d::*",
                "Use super::e",
                "ReExport self::g::H",
                "Inline crate::engine::i::J::new"
            ]
        );
    }
}
