//! The wall clock, in one place, so that tests and later the latching of expiry have one thing to turn.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// Now.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// A time as Kubernetes writes it in metadata: RFC 3339, UTC, whole seconds; never one that is still to come.
pub fn rfc3339(time: Timestamp) -> String {
    let whole = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(whole).unwrap_or(time).to_string()
}
