//! How a command ends: its exit code and what it says on standard error.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | refused or failed: the server said no, a check did not pass, a file could not be written |
//! | 2 | used wrongly: an unknown flag, a bad value, a file that cannot be understood |
//! | 3 | not reachable: no connection, no answer in time, or a certificate that is not trusted |
//! | 4 | not signed in: no credential for this server, or one that is no longer alive |
//!
//! Scripts may rely on these; the text may change.

use std::fmt;
use std::process::ExitCode;

use crate::status::Status;

/// Shown at the end of `bailiwick --help`.
pub const HELP: &str = "\
Exit codes: 0 done; 1 refused or failed; 2 used wrongly; 3 server not reachable or not trusted; 4 not signed in.
Passwords and tokens are never arguments: they come from a prompt, standard input or a file.";

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The server answered with an error.
    Server(Box<Status>),
    /// Something else went wrong, or a check did not pass.
    Failed(String),
    /// The command line or a file that it names is wrong.
    Usage(String),
    /// No trustworthy answer was had from the server.
    Unreachable(String),
    /// There is no credential, or it is no longer alive.
    NotSignedIn(String),
    /// What was asked about is refused, and the result says so: nothing more is to be said.
    Refused,
    /// Whoever read our output has stopped reading (`| head`): no error.
    OutputClosed,
}

/// What the commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Exit code, as documented above.
    pub fn code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Server(status) if status.code == 401 => 4,
            Self::Server(_) | Self::Failed(_) | Self::Refused => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::NotSignedIn(_) => 4,
        }
    }

    /// The server's answer where it was one of the given code.
    pub fn is_status(&self, code: u16) -> bool {
        matches!(self, Self::Server(status) if status.code == code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(status) => f.write_str(&server_error(status)),
            Self::Failed(text) | Self::Usage(text) | Self::Unreachable(text) | Self::NotSignedIn(text) => {
                write!(f, "error: {text}")
            }
            Self::Refused | Self::OutputClosed => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Server(Box::new(status))
    }
}

/// A server's error in kubectl's words, so that people and scripts find what they know.
fn server_error(status: &Status) -> String {
    let text = match status.reason.as_str() {
        "Unauthorized" => {
            "error: You must be logged in to the server (Unauthorized); run `bailiwick login` again, or give --token-file a live token of audience `api`".to_owned()
        }
        "Invalid" if !status.details.causes.is_empty() && !status.details.kind.is_empty() => {
            let causes = &status.details.causes;
            let head = format!("The {} {:?} is invalid:", status.details.kind, status.details.name);
            match causes.as_slice() {
                [only] => format!("{head} {}: {}", only.field, only.message),
                _ => causes.iter().fold(head, |all, cause| format!("{all}\n* {}: {}", cause.field, cause.message)),
            }
        }
        "" => format!("Error from server (HTTP {}): {}", status.code, status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    };
    match status.details.retry_after_seconds {
        Some(seconds) => format!("{text} (try again in {seconds} s)"),
        None => text,
    }
}

/// Reports a failure on standard error and gives the process its exit code.
pub fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure @ Failure::Refused) => ExitCode::from(failure.code()),
        Err(failure) => {
            super::output::complain(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Cause;
    use http::StatusCode;

    fn cause(field: &str, message: &str) -> Cause {
        Cause { reason: "FieldValueInvalid".into(), message: message.into(), field: field.into() }
    }

    #[test]
    fn errors_read_as_kubectl_writes_them() {
        let shown = |status: Status| Failure::from(status).to_string();
        assert_eq!(shown(Status::forbidden("not yours")), "Error from server (Forbidden): not yours");
        assert_eq!(
            shown(Status::not_found("projects", "x")),
            "Error from server (NotFound): projects.bailiwick.dev \"x\" not found"
        );
        assert_eq!(
            shown(Status::unauthorized()),
            "error: You must be logged in to the server (Unauthorized); run `bailiwick login` again, or give --token-file a live token of audience `api`"
        );
        assert_eq!(
            shown(Status::invalid("Project", "x", vec![cause("spec.a", "is wrong")])),
            "The Project \"x\" is invalid: spec.a: is wrong"
        );
        assert_eq!(
            shown(Status::invalid("Project", "x", vec![cause("spec.a", "is wrong"), cause("spec.b", "too")])),
            "The Project \"x\" is invalid:\n* spec.a: is wrong\n* spec.b: too"
        );
        let mut nameless = Status::invalid("", "", vec![cause("clusters", "none")]);
        nameless.message = "jane has none".into();
        assert_eq!(shown(nameless), "Error from server (Invalid): jane has none");
        assert_eq!(
            shown(Status::too_many_requests("slow down", 7)),
            "Error from server (TooManyRequests): slow down (try again in 7 s)"
        );
        assert_eq!(shown(Status::new(StatusCode::BAD_GATEWAY, "", "what")), "Error from server (HTTP 502): what");
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        assert_eq!(Failure::from(Status::forbidden("x")).code(), 1);
        assert_eq!(Failure::from(Status::unauthorized()).code(), 4);
        assert_eq!(Failure::Failed("x".into()).code(), 1);
        assert_eq!(Failure::Refused.code(), 1);
        assert_eq!(Failure::Usage("x".into()).code(), 2);
        assert_eq!(Failure::Unreachable("x".into()).code(), 3);
        assert_eq!(Failure::NotSignedIn("x".into()).code(), 4);
        assert_eq!(Failure::OutputClosed.code(), 0);
    }
}
