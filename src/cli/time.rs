//! Durations and moments as people write them.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A duration such as `30d`, `12h`, `45m` or `90s`; at least a second, at most ten years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

/// A point in time: RFC 3339, or an age such as `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A time.
    At(Timestamp),
    /// So long ago.
    Ago(Duration),
}

const LONGEST: u64 = 3650 * 86_400;

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no duration; write 30d, 12h, 45m or 90s");
        let unit = text.chars().next_back().ok_or_else(bad)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        let digits = &text[..text.len() - 1];
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let total = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(seconds)).ok_or_else(bad)?;
        match total {
            0 => Err("must be longer than nothing".to_owned()),
            total if total > LONGEST => Err("must be at most 3650d".to_owned()),
            total => Ok(Self(Duration::from_secs(total))),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(Lifetime(age)) = text.parse() {
            return Ok(Self::Ago(age));
        }
        let bad = |_| format!("{text:?} is no time; write 2026-01-31T12:00:00Z, or an age such as 1h or 7d");
        text.parse().map(Self::At).map_err(bad)
    }
}

impl Moment {
    /// The time meant, seen from `now`.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(age) => {
                SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok()).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        for (text, seconds) in [("90s", 90), ("45m", 2_700), ("12h", 43_200), ("30d", 2_592_000), ("3650d", LONGEST)] {
            assert_eq!(text.parse(), Ok(Lifetime(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "d", "30", "30D", "-1d", "1.5h", "0s", "3651d", "99999999999999999999d", "1d ", "३d", "5€"]
        {
            assert!(text.parse::<Lifetime>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn moments() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Moment>().map(|m| m.at(now).to_string());
        assert_eq!(at("1h"), Ok("2026-06-01T11:00:00Z".to_owned()));
        assert_eq!(at("2026-01-31T13:00:00+01:00"), Ok("2026-01-31T12:00:00Z".to_owned()));
        for text in ["yesterday", "2026-01-31", "12:00", ""] {
            assert!(at(text).is_err(), "{text:?}");
        }
    }
}
