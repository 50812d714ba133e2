//! Kubernetes `Status`: how every error is told, so that kubectl and client libraries understand it.
//!
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#response-status-kind>

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};

/// An error, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, `Forbidden` for example.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Which object, and which of its fields.
    #[serde(default)]
    pub details: Box<Details>,
}

/// The object that an error is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its resource, in the plural.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// What is wrong with which field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One wrong field; validation finds them.
pub use crate::resources::validation::Cause;

impl Status {
    /// A status without details.
    pub fn new(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self { code: code.as_u16(), reason: reason.to_owned(), message: message.into(), details: Box::default() }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: no credential, or none that is alive. Always the same text, so that nothing can be learnt from it.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 404 for an object of ours.
    pub fn not_found(resource: &str, name: &str) -> Self {
        let message = format!("{resource}.{} {name:?} not found", crate::resources::GROUP);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// 409: the name is taken.
    pub fn already_exists(resource: &str, name: &str) -> Self {
        let message = format!("{resource}.{} {name:?} already exists", crate::resources::GROUP);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// 409: changed by somebody else, or in a state that forbids it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 410: a watch or continue token from a past that is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 415.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 422 with the fields that are wrong.
    pub fn invalid(kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let list = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect::<Vec<_>>().join("; ");
        let message = format!("{kind}.{} {name:?} is invalid: {list}", crate::resources::GROUP);
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name);
        status.details.causes = causes;
        status
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut status = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        status.details.retry_after_seconds = Some(retry_after_seconds);
        status
    }

    /// 500, without saying more than that: the cause goes to the log.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 502: the cluster answered with what cannot be passed on.
    pub fn bad_gateway(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "BadGateway", message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// Names one of our objects in the details.
    pub fn about(mut self, resource: &str, name: &str) -> Self {
        self.details.group = crate::resources::GROUP.to_owned();
        self.details.kind = resource.to_owned();
        self.details.name = name.to_owned();
        self
    }

    /// The JSON document.
    pub fn to_json(&self) -> serde_json::Value {
        let success = self.code < 400;
        serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": if success { "Success" } else { "Failure" },
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        })
    }

    /// The HTTP response.
    pub fn into_http(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.to_json().to_string())));
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("no-cache, private"));
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        if self.code == 401 {
            response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.details.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl axum::response::IntoResponse for Status {
    fn into_response(self) -> axum::response::Response {
        self.into_http().map(axum::body::Body::new)
    }
}
