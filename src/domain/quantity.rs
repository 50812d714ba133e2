//! Kubernetes quantities, exactly: `500m`, `1.5Gi`, `2e3`.
//!
//! The grammar and the canonical form are those of
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>. Where Kubernetes rounds or caps
//! in silence (finer than nano, beyond 2^63-1), this refuses: a limit that is not what was written is worse than an
//! error. Values are kept in nano-units in 128 bits, so that sums and comparisons are exact.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

pub use quota::{QuotaKey, QuotaKeyError, check_quota};

mod quota;

const NANOS: i128 = 1_000_000_000;
/// Bytes of 1Mi.
const MEBI: i128 = 1 << 20;
/// Largest magnitude, in nano-units: what Kubernetes holds in 64 bits.
const LIMIT: i128 = i64::MAX as i128 * NANOS;

/// An exact amount. Equality and order are those of the amount; how it was written is only remembered for printing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes in which an amount was written and is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`, powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `e3`, powers of ten.
    DecimalExponent,
}

/// The finest step in which an amount can be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths: CPU.
    Milli,
    /// Whole numbers: counts.
    One,
    /// Whole numbers of bytes; parts of 1Mi and more are whole Mi, because people read them.
    Byte,
}

/// Why a text is no quantity, or a sum is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form number and suffix.
    #[error("must be a quantity such as 500m, 2, 1.5Gi or 1e3")]
    Syntax,
    /// Finer than a nano-unit.
    #[error("must not be finer than one billionth")]
    TooFine,
    /// Beyond what Kubernetes can hold.
    #[error("must be between -(2^63-1) and 2^63-1")]
    Overflow,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// A whole number.
    pub fn whole(number: i64) -> Self {
        // i64::MIN lies one beyond the limit, which is symmetric.
        Self { nanos: i128::from(number.max(-i64::MAX)) * NANOS, format: Format::DecimalSi }
    }

    /// Thousandths.
    pub fn milli(thousandths: i64) -> Self {
        Self { nanos: i128::from(thousandths) * (NANOS / 1000), format: Format::DecimalSi }
    }

    /// The amount in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether it is a multiple of the unit.
    pub fn is_multiple_of(self, unit: Unit) -> bool {
        self.nanos % unit.nanos() == 0
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The sum, printed in the format of `self` unless that is zero.
    pub fn checked_add(self, other: Self) -> Result<Self, QuantityError> {
        let format = if self.is_zero() { other.format } else { self.format };
        within(self.nanos.checked_add(other.nanos)).map(|nanos| Self { nanos, format })
    }

    /// The difference, printed as [`Quantity::checked_add`] does.
    pub fn checked_sub(self, other: Self) -> Result<Self, QuantityError> {
        self.checked_add(Self { nanos: -other.nanos, format: other.format })
    }

    /// One of `count` equal parts, rounded down to the unit; zero parts give nothing. The parts together never exceed
    /// the whole, and fall short of it by less than `count` units (Mi for bytes).
    pub fn divide(self, count: u32, unit: Unit) -> Self {
        if count == 0 {
            return Self { nanos: 0, format: self.format };
        }
        let units = self.nanos.div_euclid(unit.nanos()).div_euclid(i128::from(count));
        if unit == Unit::Byte && units >= MEBI {
            return Self { nanos: units.div_euclid(MEBI) * MEBI * NANOS, format: Format::BinarySi };
        }
        Self { nanos: units * unit.nanos(), format: self.format }
    }
}

impl Unit {
    fn nanos(self) -> i128 {
        match self {
            Unit::Milli => NANOS / 1000,
            Unit::One | Unit::Byte => NANOS,
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Syntax);
        }
        let (scale, format) = Scale::parse(suffix)?;
        // Trailing zeros of the fraction say nothing and must not count as precision.
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
        let digits = digits.trim_start_matches('0');
        let mantissa: i128 = match digits {
            "" => 0,
            _ if digits.len() > 38 => return Err(QuantityError::Overflow),
            _ => digits.parse().map_err(|_| QuantityError::Overflow)?,
        };
        let nanos = scale.apply(mantissa, fraction.len())?;
        within(Some(if negative { -nanos } else { nanos })).map(|nanos| Self { nanos, format })
    }
}

fn within(nanos: Option<i128>) -> Result<i128, QuantityError> {
    nanos.filter(|n| (-LIMIT..=LIMIT).contains(n)).ok_or(QuantityError::Overflow)
}

/// What a suffix multiplies by.
enum Scale {
    Ten(i32),
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Result<(Scale, Format), QuantityError> {
        let ten = |power| Ok((Scale::Ten(power), Format::DecimalSi));
        let two = |power| Ok((Scale::Binary(power), Format::BinarySi));
        match suffix {
            "n" => ten(-9),
            "u" => ten(-6),
            "m" => ten(-3),
            "" => ten(0),
            "k" => ten(3),
            "M" => ten(6),
            "G" => ten(9),
            "T" => ten(12),
            "P" => ten(15),
            "E" => ten(18),
            "Ki" => two(10),
            "Mi" => two(20),
            "Gi" => two(30),
            "Ti" => two(40),
            "Pi" => two(50),
            "Ei" => two(60),
            _ => {
                let power = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Syntax)?;
                let digits = power.strip_prefix(['-', '+']).unwrap_or(power);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(QuantityError::Syntax);
                }
                let power: i32 = power.parse().map_err(|_| QuantityError::Overflow)?;
                Ok((Scale::Ten(power), Format::DecimalExponent))
            }
        }
    }

    /// `mantissa` × 10^-`decimals` × the scale, in nano-units.
    fn apply(&self, mantissa: i128, decimals: usize) -> Result<i128, QuantityError> {
        let decimals = i64::try_from(decimals).map_err(|_| QuantityError::TooFine)?;
        let (mantissa, power) = match self {
            Scale::Ten(power) => (mantissa, i64::from(*power)),
            Scale::Binary(power) => (mantissa.checked_mul(1_i128 << power).ok_or(QuantityError::Overflow)?, 0),
        };
        let power = power + 9 - decimals;
        if mantissa == 0 {
            return Ok(0);
        }
        match u32::try_from(power) {
            Ok(up) => {
                10_i128.checked_pow(up).and_then(|factor| mantissa.checked_mul(factor)).ok_or(QuantityError::Overflow)
            }
            Err(_) => {
                let down = u32::try_from(-power).map_err(|_| QuantityError::TooFine)?;
                let divisor = 10_i128.checked_pow(down).ok_or(QuantityError::TooFine)?;
                if mantissa % divisor == 0 { Ok(mantissa / divisor) } else { Err(QuantityError::TooFine) }
            }
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number. As in Kubernetes, binary suffixes are used
    /// only for whole amounts of at least 1024.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANOS;
        if self.format == Format::BinarySi && self.nanos % NANOS == 0 && whole.abs() >= 1024 {
            let (value, times) = reduce(whole, 1024, 6);
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][times]);
        }
        let (value, times) = reduce(self.nanos, 1000, 9);
        match self.format {
            Format::DecimalExponent if times == 3 => write!(f, "{value}"),
            Format::DecimalExponent => write!(f, "{value}e{}", times as i32 * 3 - 9),
            _ => write!(f, "{value}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][times]),
        }
    }
}

/// Divides by `base` as often as nothing is lost, at most `most` times. `value` is not zero.
fn reduce(mut value: i128, base: i128, most: usize) -> (i128, usize) {
    let mut times = 0;
    while times < most && value % base == 0 {
        value /= base;
        times += 1;
    }
    (value, times)
}

#[cfg(test)]
mod tests;
