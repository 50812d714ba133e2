//! Audit: who did what, by which right, and what came of it.
//!
//! The records are lines of JSON in `<data>/audit`. The intent of a mutation is on the disk before the mutation is sent;
//! where it cannot be written, the mutation is refused. Everything else is buffered for up to a second. The lines are a
//! keyed chain ([`ChainKey`]), so that a change to the log is found wherever the key is.

mod chain;
mod files;
mod reader;
mod verify;
mod writer;

pub use chain::{ChainKey, Head, Mac};
pub use reader::{Filter, read};
pub use verify::{Problem, Verification, verify};
pub use writer::{Audit, AuditCounters, AuditError, AuditSettings, OpenError, ReadError, StageLabel};

use serde::{Deserialize, Serialize};

/// Which moment of a request a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Before a mutation is carried out; durable before anything is sent.
    Intent,
    /// After a request that mutates.
    Outcome,
    /// A read, after it.
    Read,
    /// A long-running response began.
    Opened,
    /// A long-running response ended.
    Closed,
    /// Refused by us; nothing was sent.
    Refused,
}

/// Which door the request came through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Surface {
    /// The proxy to clusters.
    Kube,
    /// Our own API.
    #[default]
    Api,
    /// Signing in and out.
    Auth,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 6] =
        [Stage::Intent, Stage::Outcome, Stage::Read, Stage::Opened, Stage::Closed, Stage::Refused];

    /// As in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Intent => "intent",
            Stage::Outcome => "outcome",
            Stage::Read => "read",
            Stage::Opened => "opened",
            Stage::Closed => "closed",
            Stage::Refused => "refused",
        }
    }
}

impl Surface {
    /// All surfaces.
    pub const ALL: [Surface; 3] = [Surface::Kube, Surface::Api, Surface::Auth];

    /// As in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Surface::Kube => "kube",
            Surface::Api => "api",
            Surface::Auth => "auth",
        }
    }
}

/// One record: a line of JSON. Never holds a credential, a header value or a body.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// RFC 3339 with microseconds.
    pub time: String,
    /// Ties the records of one request together.
    pub id: String,
    /// Moment.
    pub stage: Stage,
    /// Door.
    pub surface: Surface,
    /// What, everything that is known of it.
    #[serde(flatten)]
    pub what: What,
}

/// The parts of a record that describe the request. Empty parts are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct What {
    /// Account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// UID of the account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_uid: String,
    /// Id of the token (its public part).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Client address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// Kubernetes verb, or the name of the act (`login`, `suspend`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource with subresource, `pods/exec`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Path of a request that names no resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Dry run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Grant that permitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub grant: String,
    /// Role that permitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Rule that permitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rule: String,
    /// HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was refused, cut or failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Bytes from the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes to the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Milliseconds from the request's head to the end of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}
