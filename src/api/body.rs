//! Request bodies: bounded, JSON or YAML, without duplicate keys.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::Failure;
use crate::status::Status;

/// Largest body that is read. The API server of Kubernetes takes 3 MiB; etcd takes 1.5 MiB of it.
pub(super) const MAX_BODY: usize = 1024 * 1024;
/// Time for a body to arrive.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `application/merge-patch+json`.
    MergePatch,
    /// `application/json-patch+json`.
    JsonPatch,
}

/// A whole body, with its media type.
pub(super) struct Payload {
    /// Media type without parameters, lower-case; empty where none was given.
    pub(super) media_type: String,
    /// Content.
    pub(super) bytes: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for Payload {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let header = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let media_type = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let bytes = collect(body).await?;
        Ok(Self { media_type, bytes })
    }
}

/// Reads a whole body, within bounds of size and time.
pub(super) async fn collect(body: Body) -> Result<Bytes, Status> {
    let Ok(collected) = tokio::time::timeout(DEADLINE, Limited::new(body, MAX_BODY).collect()).await else {
        return Err(Status::timeout("the body did not arrive in time"));
    };
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(why) if why.downcast_ref::<LengthLimitError>().is_some() => {
            Err(Status::too_large(format!("the body is larger than {MAX_BODY} bytes")))
        }
        Err(_) => Err(Status::bad_request("the body could not be read to its end")),
    }
}

impl Payload {
    /// The object of a create or an update.
    pub(super) fn object(&self) -> Result<Value, Status> {
        match self.media_type.as_str() {
            // curl and small clients name no type; a body is JSON then.
            "" | "application/json" => parse_json(&self.bytes),
            "application/yaml" | "application/x-yaml" | "text/yaml" => parse_yaml(&self.bytes),
            other => Err(Status::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml (got {other})"
            ))),
        }
    }

    /// The patch of a PATCH.
    pub(super) fn patch(&self) -> Result<(Format, Value), Status> {
        let format = match self.media_type.as_str() {
            "application/merge-patch+json" => Format::MergePatch,
            "application/json-patch+json" => Format::JsonPatch,
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                return Err(Status::unsupported_media_type(
                    "server-side apply is not supported by this API; use `kubectl apply` without --server-side",
                ));
            }
            other => {
                return Err(Status::unsupported_media_type(format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json (got {other:?})"
                )));
            }
        };
        Ok((format, parse_json(&self.bytes)?))
    }

    /// The options of a delete; absent where the body is empty.
    pub(super) fn options(&self) -> Result<Value, Status> {
        if self.bytes.is_empty() { Ok(Value::Null) } else { self.object() }
    }

    /// The request of an act. Unknown members are refused by the type.
    pub(super) fn request<T: DeserializeOwned>(&self) -> Result<T, Status> {
        let value = if self.bytes.is_empty() { Value::Object(Map::new()) } else { self.object()? };
        // The message of serde names members and types, and quotes values only of enums: a password has none.
        serde_json::from_value(value).map_err(|e| Status::bad_request(format!("the request is not understood: {e}")))
    }
}

fn parse_json(bytes: &[u8]) -> Result<Value, Status> {
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(e) => Err(Status::bad_request(format!("the body is not acceptable JSON: {e}"))),
    }
}

fn parse_yaml(bytes: &[u8]) -> Result<Value, Status> {
    let text = std::str::from_utf8(bytes).map_err(|_| Status::bad_request("the body is not UTF-8"))?;
    match serde_saphyr::from_str::<Strict>(text) {
        Ok(Strict(value)) => Ok(value),
        // The error of the YAML reader quotes lines of the body; they may hold a password.
        Err(_) => Err(Status::bad_request("the body is not acceptable YAML (one document, no duplicate keys)")),
    }
}

/// A JSON value whose objects name no key twice: two readers could take it for two different objects.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number of JSON"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = vec![];
        while let Some(Strict(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate field {key:?}")));
            }
            let Strict(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
#[path = "../../fuzz/targets/body.rs"]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(media_type: &str, text: &str) -> Payload {
        Payload { media_type: media_type.to_owned(), bytes: Bytes::copy_from_slice(text.as_bytes()) }
    }

    #[test]
    fn json_and_yaml_read_alike() {
        let json = payload("application/json", r#"{"a":{"b":[1,"x",true,null,1.5]}}"#).object().unwrap();
        let yaml = payload("application/yaml", "a:\n  b: [1, x, true, null, 1.5]\n").object().unwrap();
        assert_eq!(json, yaml);
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"b":2,"a":1}]}"#] {
            let refused = payload("application/json", text).object().unwrap_err();
            assert!(refused.message.contains("duplicate field \"a\""), "{refused}");
            assert_eq!(refused.code, 400);
        }
        assert_eq!(payload("application/yaml", "a: 1\na: 2\n").object().unwrap_err().code, 400);
    }

    #[test]
    fn other_media_types_are_refused() {
        for media_type in ["application/vnd.kubernetes.protobuf", "application/cbor", "text/plain"] {
            assert_eq!(payload(media_type, "{}").object().unwrap_err().code, 415, "{media_type}");
        }
        for media_type in ["application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/json"]
        {
            assert_eq!(payload(media_type, "{}").patch().unwrap_err().code, 415, "{media_type}");
        }
        assert_eq!(payload("application/merge-patch+json", "{}").patch().unwrap().0, Format::MergePatch);
    }

    #[tokio::test]
    async fn bodies_are_bounded() {
        assert_eq!(collect(Body::from(vec![b' '; MAX_BODY])).await.unwrap().len(), MAX_BODY);
        assert_eq!(collect(Body::from(vec![b' '; MAX_BODY + 1])).await.unwrap_err().code, 413);
    }

    /// Anybody may send a body to `/auth/login`.
    #[test]
    fn bombs_are_refused_cheaply() {
        let deep = |open: &str, close: &str, n: usize| [open.repeat(n), close.repeat(n)].concat();
        for json in [deep("[", "]", 400_000), deep("{\"a\":", "}", 140_000)] {
            assert!(parse_json(json.as_bytes()).is_err());
        }
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}, ", level - 1).repeat(9);
            laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        for yaml in [
            deep("[", "]", 400_000),
            deep("[", "]", 1_000),
            deep("{a: ", "}", 140_000),
            "- ".repeat(400_000),
            "? ".repeat(400_000),
            (0..900).map(|n| " ".repeat(n) + "a:\n").collect(),
            laughs,
        ] {
            let spent = || {
                // Of this thread alone: how busy the machine is does not matter.
                let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
            };
            let started = spent();
            assert!(parse_yaml(yaml.as_bytes()).is_err(), "{:?}", &yaml[..40]);
            let took = spent() - started;
            assert!(took < Duration::from_secs(5), "{:?} took {took:?}", &yaml[..40]);
        }
    }
}
