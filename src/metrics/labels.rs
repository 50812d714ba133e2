//! Labels: every value is one of a few.

use std::fmt::Write as _;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// An enum whose variants are label values.
macro_rules! label_values {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All values.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$variant),*];
            /// As it is reported.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
                encoder.write_str(self.as_str())
            }
        }
    };
}

label_values! {
    /// What a request does.
    VerbClass {
        /// `get` and `list`.
        Read = "read",
        /// `watch` and followed logs.
        Watch = "watch",
        /// Mutations.
        Write = "write",
        /// `exec`, `attach` and `portforward`.
        Session = "session",
        /// Paths that name no resource.
        Other = "other",
    }
}

label_values! {
    /// Why we refused.
    Refusal {
        /// No credential, or none that is alive.
        Unauthenticated = "unauthenticated",
        /// No grant permits it.
        Forbidden = "forbidden",
        /// The target is ambiguous or malformed.
        Malformed = "malformed",
        /// Too many requests or streams.
        Budget = "budget",
        /// The intent could not be written to the audit log.
        Audit = "audit",
        /// The index does not follow the store.
        Stale = "stale",
        /// The cluster may not be used now.
        Cluster = "cluster",
        /// Anything else.
        Other = "other",
    }
}

label_values! {
    /// What a budget counts.
    BudgetKind {
        /// Requests in flight.
        Requests = "requests",
        /// Long-running responses that are open.
        Streams = "streams",
    }
}

label_values! {
    /// Which budget is used up.
    BudgetScope {
        /// Of a token.
        Token = "token",
        /// Of an account.
        User = "user",
        /// An account's share of its project on a cluster.
        ProjectShare = "project-share",
        /// Of a project on a cluster.
        Project = "project",
        /// A project's share of its cluster, or an account's outside of any project.
        ClusterShare = "cluster-share",
        /// Of a cluster.
        Cluster = "cluster",
    }
}

label_values! {
    /// What runs long.
    StreamKind {
        /// A watch.
        Watch = "watch",
        /// A followed log.
        Log = "log",
        /// An upgraded connection: `exec`, `attach`, `portforward`.
        Upgrade = "upgrade",
        /// Anything else.
        Other = "other",
    }
}

label_values! {
    /// Why we ended a stream.
    CutCause {
        /// The account was suspended or disabled, or is gone.
        Account = "account",
        /// The token was revoked or its family ended.
        Token = "token",
        /// The token or the grant ran out.
        Expired = "expired",
        /// The grant or the role no longer permits it.
        Authority = "authority",
        /// The namespace changed its owner or is gone.
        Namespace = "namespace",
        /// The cluster was removed or may not be used.
        Cluster = "cluster",
        /// The process goes down.
        Shutdown = "shutdown",
        /// Anything else.
        Other = "other",
    }
}

label_values! {
    /// Why a cluster did not answer.
    UpstreamError {
        /// No connection.
        Connect = "connect",
        /// TLS failed.
        Tls = "tls",
        /// Not in time.
        Timeout = "timeout",
        /// The connection broke, or what came was no answer.
        Broken = "broken",
        /// The cluster did not accept our credential.
        Credential = "credential",
    }
}

label_values! {
    /// Whether it worked.
    Success {
        /// It did.
        Ok = "ok",
        /// It did not.
        Error = "error",
    }
}

label_values! {
    /// What came of an attempt to sign in.
    LoginResult {
        /// Signed in.
        Ok = "ok",
        /// Unknown account, wrong password or an account that may not act.
        Refused = "refused",
        /// Too many attempts.
        BackOff = "backoff",
        /// The password must be changed first.
        MustChange = "mustChange",
    }
}

/// Door.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SurfaceLabel {
    /// `Surface::as_str`.
    pub surface: &'static str,
}

/// Door, class and answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabel {
    /// `Surface::as_str`.
    pub surface: &'static str,
    /// What the request does.
    pub verb: VerbClass,
    /// HTTP status, 0 for numbers that are none.
    pub code: u16,
}

/// Reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// Reason.
    pub reason: Refusal,
}

/// Kind of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StreamLabel {
    /// Kind.
    pub kind: StreamKind,
}

/// Cause of a cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CauseLabel {
    /// Cause.
    pub cause: CutCause,
}

/// A registered cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClusterLabel {
    /// Name of the Cluster resource.
    pub cluster: Arc<str>,
}

/// A registered cluster and an error.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClusterErrorLabel {
    /// Name of the Cluster resource.
    pub cluster: Arc<str>,
    /// Error.
    pub kind: UpstreamError,
}

/// A registered cluster and a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClusterResultLabel {
    /// Name of the Cluster resource.
    pub cluster: Arc<str>,
    /// Result.
    pub result: Success,
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BudgetLabel {
    /// Which.
    pub budget: BudgetScope,
    /// Of what.
    pub kind: BudgetKind,
}

/// A registered cluster and what is counted of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClusterKindLabel {
    /// Name of the Cluster resource.
    pub cluster: Arc<str>,
    /// What.
    pub kind: BudgetKind,
}

/// Result of an attempt to sign in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LoginResultLabel {
    /// Result.
    pub result: LoginResult,
}
