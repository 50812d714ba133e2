//! Standard output and error, told apart: results go to the first, everything said about them to the second, so that
//! every output can be piped. A reader that goes away early (`| head`) ends the command quietly.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::exit::{Failure, Outcome};
use crate::resources::validation::is_deceptive;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// JSON, as the server has it.
    Json,
    /// YAML of the same.
    Yaml,
    /// `kind.bailiwick.dev/name`, one a line.
    Name,
}

/// Writes a result to standard output.
pub fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        Err(e) => Err(Failure::Failed(format!("standard output: {e}"))),
    }
}

/// Writes a line of a result to standard output.
pub fn line(text: &str) -> Outcome {
    print(&format!("{text}\n"))
}

/// Says something about the work on standard error. If nobody can hear it, the work goes on.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A value as indented JSON with a final newline.
pub fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A value as YAML with a final newline.
pub fn yaml(value: &Value) -> Outcome<String> {
    let text = serde_saphyr::to_string(value).map_err(|e| Failure::Failed(format!("cannot write YAML: {e}")))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Prints a value in a structured format; `table` and `name` are the caller's.
pub fn structured(format: Format, value: &Value, otherwise: impl FnOnce() -> String) -> Outcome {
    match format {
        Format::Json => print(&json(value)),
        Format::Yaml => print(&yaml(value)?),
        Format::Table | Format::Name => print(&otherwise()),
    }
}

/// A line of what a server sends, for a terminal: control characters, and those that turn the direction of writing or
/// cannot be seen, become `?`.
pub fn disarmed(text: &str) -> String {
    text.chars().map(|c| if is_deceptive(c) { '?' } else { c }).collect()
}

/// Left-aligned columns, three blanks apart, as kubectl has them, with [`disarmed`] cells.
pub fn table(headers: &[String], rows: &[Vec<String>]) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(headers.iter().map(|h| disarmed(&h.to_uppercase())).collect())
        .chain(rows.iter().map(|row| row.iter().map(|cell| disarmed(cell)).collect()))
        .collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| lines.iter().filter_map(|l| l.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for cells in &lines {
        let mut row = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            row.push_str(cell);
            row.extend(std::iter::repeat_n(' ', width + 3 - cell.chars().count()));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// The columns and rows of a `meta.k8s.io/v1` Table; columns of lower priority are left out, as kubectl does.
pub fn server_table(table_value: &Value) -> String {
    let empty = Vec::new();
    let definitions = table_value["columnDefinitions"].as_array().unwrap_or(&empty);
    let shown: Vec<usize> =
        (0..definitions.len()).filter(|at| definitions[*at]["priority"].as_i64().unwrap_or(0) == 0).collect();
    let headers: Vec<String> = shown.iter().map(|at| text(&definitions[*at]["name"])).collect();
    let rows: Vec<Vec<String>> = table_value["rows"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .map(|row| shown.iter().map(|at| text(&row["cells"][*at])).collect())
        .collect();
    table(&headers, &rows)
}

/// A JSON value in a cell.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) if text.is_empty() => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "<none>".to_owned(),
        Value::Array(items) => items.iter().map(self::text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_align_and_disarm_control_characters() {
        let rows = vec![
            vec!["a".to_owned(), "long value".to_owned()],
            vec!["bcd\u{1b}[31m".to_owned(), "x\u{202e}y".to_owned()],
        ];
        let shown = table(&["name".to_owned(), "what".to_owned()], &rows);
        assert_eq!(shown, "NAME       WHAT\na          long value\nbcd?[31m   x?y\n");
    }

    #[test]
    fn server_tables_leave_out_low_priority_columns() {
        let value = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Hidden", "priority": 1}, {"name": "Age", "priority": 0},
            ],
            "rows": [{"cells": ["shop", "secret", "5m"]}, {"cells": ["x", "y", null]}],
        });
        let shown = server_table(&value);
        assert_eq!(shown, "NAME   AGE\nshop   5m\nx      <none>\n");
    }

    #[test]
    fn yaml_keeps_strings_that_look_like_something_else() {
        let value = json!({"a": "yes", "b": "0123", "c": "1e3", "d": "", "e": "null", "f": "two\nlines", "g": "x: y",
            "h": 3, "i": true, "j": null, "k": [], "l": {}, "m": "~", "n": "1.30", "o": "# no", "p": "2026-01-01"});
        let back: Value = serde_saphyr::from_str(&yaml(&value).unwrap()).unwrap();
        assert_eq!(back, value);
    }
}
