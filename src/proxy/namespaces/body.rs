//! What a client sends with an act on a namespace, read whole.

use bytes::Bytes;
use serde_json::Value;

use super::{Act, protobuf};
use crate::clusters::names::FIELD_MANAGER;
use crate::domain::request::pairs;
use crate::status::Status;

/// Longest body that is read. A namespace carries labels and annotations of members, and nothing else of theirs.
pub const MAX_BODY: usize = 64 * 1024;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`, or no content type on a body that is empty.
    Json,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/json-patch+json`
    JsonPatch,
    /// `application/merge-patch+json`
    MergePatch,
    /// `application/strategic-merge-patch+json`
    StrategicPatch,
    /// `application/apply-patch+yaml`; what is YAML and not JSON is refused.
    Apply,
}

impl Encoding {
    /// The encoding that a content type names, where the act can be written in it.
    pub fn of(act: Act, verb_is_patch: bool, content_type: &str) -> Option<Self> {
        let named = match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" => Self::Json,
            "" if act == Act::Delete => Self::Json,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            "application/json-patch+json" => Self::JsonPatch,
            "application/merge-patch+json" => Self::MergePatch,
            "application/strategic-merge-patch+json" => Self::StrategicPatch,
            "application/apply-patch+yaml" => Self::Apply,
            _ => return None,
        };
        let whole = matches!(named, Self::Json | Self::Protobuf);
        (whole != verb_is_patch).then_some(named)
    }
}

/// What the query asks for beside the act.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Change nothing.
    pub dry_run: bool,
    /// Name that the client's fields are recorded under.
    pub manager: String,
}

impl Options {
    /// Reads a query that was parsed before. Everything unknown is refused: what is done here must not do less, or more,
    /// than was asked.
    pub fn read(query: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        let pairs = pairs(query).map_err(|why| Status::bad_request(why.to_string()))?;
        for (key, value) in pairs {
            match key.as_str() {
                "dryRun" if value == "All" => options.dry_run = true,
                "dryRun" => return Err(Status::bad_request("dryRun can only be All")),
                // Server-side apply would take our own fields for the client's, and remove those that it leaves out.
                "fieldManager" if value == FIELD_MANAGER => {
                    return Err(Status::bad_request(format!("fieldManager {FIELD_MANAGER:?} is the service's own")));
                }
                "fieldManager" if value.len() <= 128 && value.chars().all(|c| !c.is_control()) => {
                    options.manager = value;
                }
                "fieldManager" => {
                    return Err(Status::bad_request("fieldManager must be at most 128 printable characters"));
                }
                "fieldValidation" | "pretty" | "timeout" | "force" => {}
                other => {
                    let other = super::metadata::shown(other);
                    return Err(Status::bad_request(format!(
                        "the query parameter {other:?} is not known for namespaces"
                    )));
                }
            }
        }
        Ok(options)
    }
}

/// An act with what was sent for it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The act.
    pub act: Act,
    /// What was sent.
    pub object: Value,
    /// How it was written.
    pub encoding: Encoding,
    /// What the query asks for.
    pub options: Options,
}

impl Asked {
    /// Reads a body.
    pub fn read(act: Act, encoding: Encoding, options: Options, body: &Bytes) -> Result<Self, Status> {
        let malformed = |why: String| Status::bad_request(format!("the body cannot be read: {why}"));
        let object = match encoding {
            _ if body.is_empty() && act == Act::Delete => Value::Object(serde_json::Map::new()),
            Encoding::Protobuf if act == Act::Create => protobuf::namespace(body).map_err(malformed)?,
            Encoding::Protobuf => {
                return Err(Status::unsupported_media_type("this is read as JSON here; send application/json"));
            }
            _ => serde_json::from_slice(body).map_err(|why| malformed(why.to_string()))?,
        };
        Ok(Self { act, object, encoding, options })
    }

    /// The name that a new namespace is to have; empty where none is given.
    pub fn name(&self) -> &str {
        self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }
}
