//! YAML as people and every YAML reader of the field take it: block style, strings quoted where a reader could take
//! them for something else (`yes` is a boolean to YAML 1.1).

use serde_json::Value;

/// A document.
pub(super) fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => write(value, 0, &mut out),
        other => {
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
    out
}

fn write(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str(&text(key));
                out.push(':');
                nested(value, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push_str("- ");
                match item {
                    Value::Object(map) if !map.is_empty() => write(item, indent + 2, out),
                    // A list in a list is rare; JSON is YAML too.
                    other => {
                        out.push_str(&scalar(other));
                        out.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

fn nested(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write(value, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write(value, indent, out);
        }
        other => {
            out.push(' ');
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        other => other.to_string(),
    }
}

/// A string, plain where nobody can misread it. JSON's quoting is YAML's.
fn text(string: &str) -> String {
    const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];
    let plain = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && string.ends_with(|c: char| c.is_ascii_alphanumeric())
        && string.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b'@'))
        && !WORDS.contains(&string.to_ascii_lowercase().as_str());
    if plain {
        return string.to_owned();
    }
    // JSON lets characters stand plainly that YAML takes in escapes only.
    let quoted = Value::from(string).to_string();
    quoted.chars().fold(String::with_capacity(quoted.len()), |mut out, c| {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let value = json!({
            "a": "yes", "b": "0123", "c": "1e3", "d": "", "e": "null", "f": "two\nlines", "g": "x: y", "h": 3,
            "i": true, "j": null, "k": [], "l": {}, "m": "~", "n": "1.30", "o": "# no", "p": "2026-01-01",
            "list": [{"name": "on", "deep": {"x": [1, "2"], "y": {}}}, "s", [1, ["a"]], {}],
            "on": {"- ": "- x"}, "shop@east": "shop@east", "u": "https://example.com/x", "é": "ü",
            "v": "\u{7f}\u{85}\u{feff}\u{2028}\0",
        });
        let back: Value = serde_saphyr::from_str(&to_yaml(&value)).unwrap();
        assert_eq!(back, value);
        assert!(to_yaml(&value).contains("\na: \"yes\"\n") || to_yaml(&value).starts_with("a: \"yes\"\n"));
        assert_eq!(to_yaml(&json!({})), "{}\n");
    }
}
