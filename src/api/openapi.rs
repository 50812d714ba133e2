//! OpenAPI v3 of our group, derived from the CRDs: `kubectl explain` and validation read it.
//!
//! kubectl looks for `fieldValidation` and `dryRun` among the query parameters of PATCH, and for the media types of
//! PATCH: were a strategic merge patch among them, `kubectl apply` would send one.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::kinds::{self, Served};
use crate::resources::{API_VERSION, GROUP, VERSION};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// A document and the hash of its content.
pub(super) struct Document {
    /// JSON.
    pub(super) body: Bytes,
    /// Content hash; also the entity tag.
    pub(super) hash: String,
}

fn document(value: &Value) -> Document {
    let body = Bytes::from(value.to_string());
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&body));
    Document { body, hash }
}

/// `/openapi/v3`.
pub(super) fn index() -> &'static Document {
    static INDEX: LazyLock<Document> = LazyLock::new(|| {
        let path = format!("apis/{GROUP}/{VERSION}");
        let url = format!("/openapi/v3/{path}?hash={}", group().hash);
        document(&json!({"paths": {path: {"serverRelativeURL": url}}}))
    });
    &INDEX
}

/// `/openapi/v3/apis/bailiwick.dev/v1alpha1`.
pub(super) fn group() -> &'static Document {
    static GROUP_DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        let mut schemas = meta_schemas();
        let mut paths = Map::new();
        for served in kinds::all() {
            schemas.insert(schema_name(served.name()), object_schema(served));
            schemas.insert(schema_name(&format!("{}List", served.name())), list_schema(served));
            let base = format!("/apis/{API_VERSION}/{}", served.plural);
            paths.insert(format!("{base}/{{name}}"), object_path(served));
            paths.insert(base, collection_path(served));
        }
        document(&json!({
            "openapi": "3.0.0",
            "info": {"title": "Bailiwick", "version": env!("CARGO_PKG_VERSION")},
            "paths": paths,
            "components": {"schemas": schemas},
        }))
    });
    &GROUP_DOCUMENT
}

fn schema_name(kind: &str) -> String {
    format!("dev.bailiwick.{VERSION}.{kind}")
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn gvk(kind: &str) -> Value {
    json!({"group": GROUP, "version": VERSION, "kind": kind})
}

fn type_meta() -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    Map::from_iter([
        ("apiVersion".to_owned(), text("APIVersion defines the versioned schema of this representation of an object.")),
        ("kind".to_owned(), text("Kind is a string value representing the resource this object represents.")),
    ])
}

fn object_schema(served: &Served) -> Value {
    let mut schema = served.schema.clone();
    let mut properties = type_meta();
    properties.insert(
        "metadata".to_owned(),
        json!({
            "description": "Standard object's metadata.",
            "allOf": [reference(OBJECT_META)],
            "default": {},
        }),
    );
    if let Some(own) = schema.get("properties").and_then(Value::as_object) {
        properties.extend(own.clone());
    }
    if let Some(schema) = schema.as_object_mut() {
        // Derived types have no words of their own; those of the spec say what the kind is.
        if let Some(description) = properties.get("spec").and_then(|spec| spec.get("description")).cloned() {
            schema.insert("description".to_owned(), description);
        }
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(served.name())]));
    }
    schema
}

fn list_schema(served: &Served) -> Value {
    let mut properties = type_meta();
    properties.insert("metadata".to_owned(), json!({"allOf": [reference(LIST_META)], "default": {}}));
    properties.insert("items".to_owned(), json!({"type": "array", "items": reference(&schema_name(served.name()))}));
    let kind = format!("{}List", served.name());
    json!({
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": [gvk(&kind)],
    })
}

fn operation(served: &Served, action: &str, parameters: &[&str], body: &[&str], answers: &str) -> Value {
    let parameters = parameters.iter().map(|name| {
        let type_ = match *name {
            "limit" | "timeoutSeconds" => "integer",
            "watch" | "allowWatchBookmarks" | "sendInitialEvents" => "boolean",
            _ => "string",
        };
        json!({"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": true}})
    });
    let mut operation = json!({
        "tags": [GROUP],
        "operationId": format!("{action}{}", served.name()),
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference(answers)}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(served.name()),
    });
    if !body.is_empty() {
        let schema = if action == "patch" { json!({}) } else { reference(&schema_name(served.name())) };
        let content = body.iter().map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})));
        operation["requestBody"] = json!({"required": true, "content": content.collect::<Map<_, _>>()});
    }
    operation
}

const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const BODY: &[&str] = &["application/json", "application/yaml"];

fn collection_path(served: &Served) -> Value {
    const LIST: &[&str] = &[
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    ];
    let list = schema_name(&format!("{}List", served.name()));
    let mut path = json!({"get": operation(served, "list", LIST, &[], &list)});
    if served.is_written() {
        path["post"] = operation(served, "post", WRITE, BODY, &schema_name(served.name()));
    }
    path
}

fn object_path(served: &Served) -> Value {
    const PATCH: &[&str] = &["application/json-patch+json", "application/merge-patch+json"];
    let object = schema_name(served.name());
    let mut path = json!({
        "get": operation(served, "get", &[], &[], &object),
        "delete": operation(served, "delete", &["dryRun", "propagationPolicy"], &[], STATUS),
        "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
    });
    if served.is_written() {
        path["put"] = operation(served, "put", WRITE, BODY, &object);
        path["patch"] = operation(served, "patch", WRITE, PATCH, &object);
    }
    path
}

/// Schemas of metadata, from the types themselves, with references in OpenAPI's place.
fn meta_schemas() -> Map<String, Value> {
    let mut root = serde_json::to_value(schemars::schema_for!(ObjectMeta)).unwrap_or_default();
    let mut schemas = Map::new();
    let parts = root.as_object_mut().and_then(|root| root.remove("$defs"));
    for (name, mut schema) in parts.as_ref().and_then(Value::as_object).cloned().unwrap_or_default() {
        adapt(&mut schema);
        schemas.insert(name, schema);
    }
    adapt(&mut root);
    schemas.insert(OBJECT_META.to_owned(), root);
    let text = json!({"type": "string"});
    schemas.insert(
        LIST_META.to_owned(),
        json!({"type": "object", "properties": {"continue": text, "resourceVersion": text,
            "remainingItemCount": {"type": "integer", "format": "int64"}}}),
    );
    schemas.insert(
        STATUS.to_owned(),
        json!({"type": "object", "properties": {"apiVersion": text, "kind": text, "status": text, "message": text,
            "reason": text, "code": {"type": "integer", "format": "int32"}, "details": {"type": "object"}}}),
    );
    schemas
}

/// Turns JSON Schema 2020-12 as the types give it into what OpenAPI 3.0 has.
fn adapt(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for key in ["$schema", "title", "$defs"] {
                if object.get(key).is_some_and(|value| key != "title" || value.is_string()) {
                    object.remove(key);
                }
            }
            if let Some(Value::Array(types)) = object.get("type") {
                let main = types.iter().find(|t| *t != "null").cloned().unwrap_or_else(|| json!("object"));
                object.insert("type".to_owned(), main);
            }
            if let Some(Value::String(target)) = object.get("$ref")
                && let Some(name) = target.strip_prefix("#/$defs/")
            {
                object.insert("$ref".to_owned(), json!(format!("#/components/schemas/{name}")));
            }
            // `anyOf: [X, null]` is how an optional reference comes.
            if let Some(Value::Array(options)) = object.get("anyOf") {
                let real: Vec<Value> = options.iter().filter(|o| o["type"] != "null").cloned().collect();
                if real.len() == 1 {
                    object.remove("anyOf");
                    object.insert("allOf".to_owned(), Value::Array(real));
                }
            }
            object.values_mut().for_each(adapt);
        }
        Value::Array(values) => values.iter_mut().for_each(adapt),
        _ => {}
    }
}

/// Names of the fields that metadata has.
pub(super) fn metadata_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut root = serde_json::to_value(schemars::schema_for!(ObjectMeta)).unwrap_or_default();
        adapt(&mut root);
        root
    });
    &SCHEMA
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed() -> Value {
        serde_json::from_slice(&group().body).unwrap()
    }

    #[test]
    fn patch_says_what_kubectl_looks_for() {
        let document = parsed();
        for served in kinds::all().iter().filter(|served| served.is_written()) {
            let patch = &document["paths"][format!("/apis/{API_VERSION}/{}/{{name}}", served.plural)]["patch"];
            assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], served.name());
            for wanted in ["dryRun", "fieldValidation"] {
                assert!(patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == wanted), "{wanted}");
            }
            let content = patch["requestBody"]["content"].as_object().unwrap();
            assert!(content.contains_key("application/merge-patch+json"));
            assert!(!content.contains_key("application/strategic-merge-patch+json"));
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, schemas: &Value) {
            match value {
                Value::Object(object) => {
                    if let Some(Value::String(target)) = object.get("$ref") {
                        let name = target.strip_prefix("#/components/schemas/").unwrap_or_default();
                        assert!(schemas.get(name).is_some(), "{target}");
                    }
                    object.values().for_each(|v| walk(v, schemas));
                }
                Value::Array(values) => values.iter().for_each(|v| walk(v, schemas)),
                _ => {}
            }
        }
        let document = parsed();
        walk(&document, &document["components"]["schemas"]);
        assert!(document["components"]["schemas"][OBJECT_META]["properties"]["labels"].is_object());
    }

    #[test]
    fn the_index_names_the_document_by_its_hash() {
        let index: Value = serde_json::from_slice(&index().body).unwrap();
        let url = index["paths"]["apis/bailiwick.dev/v1alpha1"]["serverRelativeURL"].as_str().unwrap();
        assert!(url.ends_with(&group().hash));
    }
}
