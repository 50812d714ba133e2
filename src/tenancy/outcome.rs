//! What comes of an act on namespaces, and how it is told.

use http::StatusCode;

use super::TenancyError;
use crate::status::Status;

/// Why an act did not succeed, or not yet.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActError {
    /// It was refused; nothing has changed.
    #[error(transparent)]
    Tenancy(#[from] TenancyError),
    /// The cluster has a namespace of this name that is not the project's. The claim was given up again.
    #[error("{0}")]
    Refused(String),
    /// It is recorded and will be done; the cluster has not come so far in time. What is missing.
    #[error(
        "the namespace is the project's, and access to it is not effective yet: {0}; it will be as soon as the cluster is done"
    )]
    NotYet(String),
    /// The cluster could not be asked; nothing has changed.
    #[error("the cluster could not be asked: {0}")]
    NoAnswer(String),
}

impl ActError {
    /// As it is told to clients.
    pub fn status(self) -> Status {
        match self {
            Self::Tenancy(why) => why.status(),
            Self::Refused(why) => Status::conflict(why),
            Self::NotYet(why) => Status::timeout(why),
            why @ Self::NoAnswer(_) => Status::unavailable(why.to_string()),
        }
    }
}

impl TenancyError {
    /// As it is told to clients.
    pub fn status(self) -> Status {
        use TenancyError as E;
        let text = self.to_string();
        match self {
            E::NoProject(name) => Status::not_found("projects", &name),
            E::NoCluster(name) => Status::not_found("clusters", &name),
            E::NotOwned { .. } => Status::new(StatusCode::NOT_FOUND, "NotFound", text),
            E::NotOnCluster { .. } | E::NotAllowed { .. } | E::Full { .. } | E::Quota { .. } | E::System(_) => {
                Status::forbidden(text)
            }
            E::BadName { .. } => Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text),
            E::Taken { .. } | E::AlreadyOwned { .. } => Status::new(StatusCode::CONFLICT, "AlreadyExists", text),
            E::ProjectDeleting(_) | E::Releasing { .. } | E::Declared { .. } | E::Contended(_) => {
                Status::conflict(text)
            }
            E::BadQuota { .. } => Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text),
            E::Unreadable { .. } | E::Store(_) => {
                tracing::error!(why = text, "an act on namespaces failed");
                Status::unavailable("the namespace could not be changed; whether it was in part is unknown")
            }
        }
    }
}
