//! Label and field selectors, as
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors> has them.

use serde_json::Value;

use crate::status::Status;

/// Longest selector that is read.
const MAX_SELECTOR: usize = 8 * 1024;

/// What a list or a watch is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    names: Vec<NameRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NameRequirement {
    name: String,
    equal: bool,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector`.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        if labels.len() > MAX_SELECTOR || fields.len() > MAX_SELECTOR {
            return Err(Status::bad_request(format!("a selector is longer than {MAX_SELECTOR} bytes")));
        }
        let labels = split(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let names = fields
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(name_requirement)
            .collect::<Result<Vec<Option<_>>, _>>()?;
        Ok(Self { labels, names: names.into_iter().flatten().collect() })
    }

    /// Whether an object is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        self.names.iter().all(|r| (r.name == name) == r.equal)
            && self.labels.iter().all(|r| r.matches(metadata["labels"].get(&r.key).and_then(Value::as_str)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
            Operator::LessThan(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Splits at commas that stand outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0usize, 0usize, vec![]);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, Status> {
    let refuse = |why: &str| Status::bad_request(format!("unable to parse requirement {text:?}: {why}"));
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement { key: label_key(key.trim()).map_err(refuse)?, operator: Operator::Absent });
    }
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(|| refuse("the parenthesis is not closed"))?;
        let values = values.split(',').map(|v| label_value(v.trim())).collect::<Result<Vec<_>, _>>().map_err(refuse)?;
        let mut words = head.split_whitespace();
        let (key, operator, rest) = (words.next(), words.next(), words.next());
        let key = label_key(key.unwrap_or_default()).map_err(refuse)?;
        return match (operator, rest) {
            (Some("in"), None) => Ok(Requirement { key, operator: Operator::In(values) }),
            (Some("notin"), None) => Ok(Requirement { key, operator: Operator::NotIn(values) }),
            _ => Err(refuse("expected `in` or `notin`")),
        };
    }
    for sign in ["!=", "==", "=", ">", "<"] {
        let Some((key, value)) = text.split_once(sign) else { continue };
        let key = label_key(key.trim()).map_err(refuse)?;
        let value = label_value(value.trim()).map_err(refuse)?;
        let number = || value.parse::<i64>().map_err(|_| refuse("expected an integer"));
        let operator = match sign {
            "!=" => Operator::NotIn(vec![value]),
            ">" => Operator::GreaterThan(number()?),
            "<" => Operator::LessThan(number()?),
            _ => Operator::In(vec![value]),
        };
        return Ok(Requirement { key, operator });
    }
    Ok(Requirement { key: label_key(text).map_err(refuse)?, operator: Operator::Exists })
}

/// Checks a label's key: a name of at most 63 characters, perhaps with a DNS prefix.
pub(super) fn label_key(key: &str) -> Result<String, &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_ok = prefix.is_none_or(|prefix| {
        let part_ok = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        prefix.len() <= 253 && prefix.split('.').all(part_ok)
    });
    if prefix_ok && is_qualified(name) { Ok(key.to_owned()) } else { Err("not a label key") }
}

/// Checks a label's value: empty, or at most 63 characters.
pub(super) fn label_value(value: &str) -> Result<String, &'static str> {
    if value.is_empty() || is_qualified(value) { Ok(value.to_owned()) } else { Err("not a label value") }
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 63
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn name_requirement(text: &str) -> Result<Option<NameRequirement>, Status> {
    let (field, value, equal) = if let Some((field, value)) = text.split_once("!=") {
        (field, value, false)
    } else if let Some((field, value)) = text.split_once('=') {
        (field, value.strip_prefix('=').unwrap_or(value), true)
    } else {
        return Err(Status::bad_request(format!("invalid field selector {text:?}: expected field=value")));
    };
    match field.trim() {
        "metadata.name" => Ok(Some(NameRequirement { name: value.trim().to_owned(), equal })),
        // Objects here have no namespace; kubectl may still say so.
        "metadata.namespace" if value.trim().is_empty() && equal => Ok(None),
        other => Err(Status::bad_request(format!(
            "field label not supported: {other}; this API selects by metadata.name only"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(labels: &str, fields: &str) -> bool {
        let object = json!({"metadata": {"name": "shop", "labels": {"tier": "web", "example.com/n": "5"}}});
        Selector::parse(labels, fields).unwrap().matches(&object)
    }

    #[test]
    fn labels() {
        for yes in [
            "",
            "tier=web",
            "tier==web",
            "tier",
            "!gone",
            "tier in (db, web)",
            "tier notin (db)",
            "gone!=x",
            "tier!=db,example.com/n>4",
            "example.com/n<6",
            "gone notin (a)",
        ] {
            assert!(selects(yes, ""), "{yes}");
        }
        for no in
            ["tier=db", "gone", "!tier", "tier in (db)", "tier notin (web,db)", "example.com/n>5", "tier=web,gone"]
        {
            assert!(!selects(no, ""), "{no}");
        }
        for bad in ["tier in web", "tier in (web", "a b", "=x", "tier=a/b", "tier>x", "-a=b", "Aa/b/c"] {
            assert_eq!(Selector::parse(bad, "").unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn fields() {
        assert!(selects("", "metadata.name=shop"));
        assert!(selects("", "metadata.name!=other,metadata.namespace="));
        assert!(!selects("", "metadata.name=other"));
        assert!(!selects("", "metadata.name!=shop"));
        for bad in ["spec.role=x", "metadata.name", "metadata.namespace=a"] {
            assert_eq!(Selector::parse("", bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
