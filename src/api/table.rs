//! Objects as kubectl shows them: rows under the columns of the kind, and metadata alone.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::{Include, Shape};
use super::kinds::Served;
use crate::resources::API_VERSION;

/// A list in the shape asked for.
pub(super) fn list(served: &Served, shape: Shape, objects: Vec<Value>, metadata: Value, now: Timestamp) -> Value {
    match shape {
        Shape::Object => json!({
            "apiVersion": API_VERSION,
            "kind": format!("{}List", served.name()),
            "metadata": metadata,
            "items": objects,
        }),
        Shape::Partial => json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadataList",
            "metadata": metadata,
            "items": objects.into_iter().map(partial).collect::<Vec<_>>(),
        }),
        Shape::Table(include) => table(served, include, objects, metadata, now),
    }
}

/// One object in the shape asked for.
pub(super) fn single(served: &Served, shape: Shape, object: Value, now: Timestamp) -> Value {
    match shape {
        Shape::Object => object,
        Shape::Partial => partial(object),
        Shape::Table(include) => {
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            table(served, include, vec![object], metadata, now)
        }
    }
}

fn partial(object: Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

fn table(served: &Served, include: Include, objects: Vec<Value>, metadata: Value, now: Timestamp) -> Value {
    let mut columns = vec![json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "Name of the object, unique within its kind.",
        "priority": 0,
    })];
    columns.extend(served.columns.iter().map(|column| {
        // Dates are told as ages, which are text.
        let type_ = if column.type_ == "date" { "string" } else { column.type_.as_str() };
        json!({
            "name": column.name,
            "type": type_,
            "format": "",
            "description": column.description,
            "priority": column.priority,
        })
    }));
    let rows = objects.into_iter().map(|object| {
        let cells = std::iter::once(object["metadata"]["name"].clone())
            .chain(served.columns.iter().map(|column| cell(&object, &column.path, &column.type_, now)))
            .collect::<Vec<_>>();
        match include {
            Include::None => json!({"cells": cells}),
            Include::Metadata => json!({"cells": cells, "object": partial(object)}),
            Include::Object => json!({"cells": cells, "object": object}),
        }
    });
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn cell(object: &Value, path: &[String], type_: &str, now: Timestamp) -> Value {
    let value = path.iter().fold(object, |value, member| &value[member.as_str()]);
    match (type_, value) {
        ("date", Value::String(time)) => match time.parse::<Timestamp>() {
            Ok(time) => Value::String(age(now.as_second() - time.as_second())),
            Err(_) => Value::String("<invalid>".to_owned()),
        },
        ("date", _) => Value::String("<unknown>".to_owned()),
        ("integer", Value::Number(_)) | ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        (_, Value::Null) => Value::Null,
        ("string", other) => Value::String(other.to_string()),
        _ => Value::Null,
    }
}

/// A duration as kubectl's users know it: `45s`, `3m20s`, `5h`, `12d`, `2y30d`.
fn age(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(hours / 24, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        () => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds;
    use super::*;

    #[test]
    fn ages() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (5 * 3600 + 60, "5h1m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (20 * 86_400, "20d"),
            (3 * 365 * 86_400, "3y"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn rows_follow_the_columns() {
        let now: Timestamp = "2030-01-02T00:00:00Z".parse().unwrap();
        let user = json!({
            "metadata": {"name": "jane", "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {"displayName": "Jane", "type": "Human"},
            "status": {"state": "Active", "tokens": 2},
        });
        let served = kinds::by_plural("users").unwrap();
        let table = list(served, Shape::Table(Include::None), vec![user.clone()], json!({}), now);
        assert_eq!(table["rows"][0]["cells"], json!(["jane", "Jane", "Human", "Active", 2, "24h"]));
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 6);
        assert!(table["rows"][0].get("object").is_none());
        let partial = list(served, Shape::Partial, vec![user], json!({}), now);
        assert_eq!(partial["items"][0]["metadata"]["name"], "jane");
        assert!(partial["items"][0].get("spec").is_none());
    }
}
