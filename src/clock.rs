//! The wall clock, in one place, so that tests and later the latching of expiry have one thing to turn.

use jiff::Timestamp;

/// Now.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// A time as Kubernetes writes it in metadata: RFC 3339, UTC, whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.round(jiff::Unit::Second).unwrap_or(time).to_string()
}
