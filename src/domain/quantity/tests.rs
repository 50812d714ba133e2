use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Quantity, QuantityError> {
    text.parse()
}

#[test]
fn texts_have_the_value_that_kubernetes_gives_them() {
    for (text, nanos) in [
        ("0", 0),
        ("1", NANOS),
        ("+1", NANOS),
        ("-1", -NANOS),
        ("1.", NANOS),
        (".5", NANOS / 2),
        ("0.10", NANOS / 10),
        ("1n", 1),
        ("1u", 1_000),
        ("100m", NANOS / 10),
        ("1k", 1_000 * NANOS),
        ("1M", 1_000_000 * NANOS),
        ("1G", NANOS * NANOS),
        ("1T", 1_000 * NANOS * NANOS),
        ("1P", 1_000_000 * NANOS * NANOS),
        ("1E", NANOS * NANOS * NANOS),
        ("1Ki", 1024 * NANOS),
        ("1.5Gi", 1_610_612_736 * NANOS),
        ("0.5Ki", 512 * NANOS),
        ("7Ei", 7 * (1 << 60) * NANOS),
        ("1e3", 1_000 * NANOS),
        ("1E3", 1_000 * NANOS),
        ("1e-3", NANOS / 1000),
        ("12.5e+1", 125 * NANOS),
        ("9223372036854775807", LIMIT),
        ("0000000000000000000000000000000000000000001", NANOS),
        ("1.0000000000000000000000000000000000000000000", NANOS),
        ("0e99", 0),
    ] {
        assert_eq!(parse(text).map(Quantity::nanos), Ok(nanos), "{text}");
    }
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "", "-", "+", ".", "m", "Ki", "1K", "1ki", "1KI", "1mi", "1 ", " 1", "1 Gi", "1.2.3", "1..2", "--1", "+-1",
        "1e", "1e+", "1e1.5", "1Ee3", "0x10", "1_000", "١", "1G1", "1Gi1", "nan", "inf", "1,5", "1e3Ki",
    ] {
        assert_eq!(parse(text), Err(QuantityError::Syntax), "{text:?}");
    }
    for text in ["0.1n", "1e-10", "0.0000000001", "1e-2147483648", "1.1n"] {
        assert_eq!(parse(text), Err(QuantityError::TooFine), "{text:?}");
    }
    for text in [
        "9223372036854775808",
        "-9223372036854775808",
        "8Ei",
        "10E",
        "1e19",
        "1e2147483647",
        "1e2147483648",
        "1e99999999999",
        "99999999999999999999999999999999999999999999",
    ] {
        assert_eq!(parse(text), Err(QuantityError::Overflow), "{text:?}");
    }
}

#[test]
fn the_canonical_form_is_that_of_kubernetes() {
    for (text, canonical) in [
        ("0", "0"),
        ("0Gi", "0"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.0005Ki", "1024512m"),
        ("1000Ki", "1000Ki"),
        ("-2000", "-2k"),
        ("1e3", "1e3"),
        ("10e3", "10e3"),
        ("5e-1", "500e-3"),
        ("7e0", "7"),
        ("1000000000000000000", "1E"),
        ("1n", "1n"),
    ] {
        assert_eq!(parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn sums_are_exact_and_overflow_is_an_error() {
    let add = |a: &str, b: &str| parse(a).unwrap().checked_add(parse(b).unwrap()).map(|q| q.to_string());
    assert_eq!(add("1Gi", "512Mi"), Ok("1536Mi".into()));
    assert_eq!(add("0", "512Mi"), Ok("512Mi".into()));
    assert_eq!(add("1", "1n"), Ok("1000000001n".into()));
    assert_eq!(add("7Ei", "1Ei"), Err(QuantityError::Overflow));
    assert_eq!(parse("1").unwrap().checked_sub(parse("1500m").unwrap()).unwrap().to_string(), "-500m");
    assert_eq!(parse("-7Ei").unwrap().checked_sub(parse("7Ei").unwrap()), Err(QuantityError::Overflow));
}

#[test]
fn equal_amounts_are_equal_however_written() {
    assert_eq!(parse("1Ki"), parse("1024"));
    assert_eq!(parse("0.5"), parse("500m"));
    assert!(parse("1G").unwrap() < parse("1Gi").unwrap());
    assert!(parse("-1").unwrap() < Quantity::ZERO);
    assert_eq!(Quantity::milli(1500), parse("1.5").unwrap());
    assert_eq!(Quantity::whole(i64::MIN), parse("-9223372036854775807").unwrap());
}

#[test]
fn no_parts_give_nothing() {
    assert_eq!(parse("4").unwrap().divide(0, Unit::Milli), Quantity::ZERO);
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(nanos in -LIMIT..=LIMIT, format in 0..3_u8) {
        let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][usize::from(format)];
        let quantity = Quantity { nanos, format };
        let text = quantity.to_string();
        let back = parse(&text);
        prop_assert_eq!(back, Ok(quantity), "{}", &text);
        // Canonical: printing again changes nothing.
        prop_assert_eq!(back.unwrap().to_string(), text);
    }

    #[test]
    fn whole_bytes_are_read_back(bytes in 0..i64::MAX, power in 0..4_u32) {
        let bytes = (bytes >> (10 * power)) << (10 * power);
        let quantity = Quantity { nanos: i128::from(bytes) * NANOS, format: Format::BinarySi };
        prop_assert_eq!(parse(&quantity.to_string()), Ok(quantity));
    }

    #[test]
    fn anything_is_read_without_panic(text in "[-+]?[0-9.]{0,45}[a-zA-Z]{0,2}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = parse(&text) {
            prop_assert_eq!(parse(&quantity.to_string()), Ok(quantity));
        }
    }

    #[test]
    fn parts_never_exceed_the_whole(nanos in 0..=LIMIT, count in 1..10_000_u32, unit in 0..3_usize) {
        let unit = [Unit::Milli, Unit::One, Unit::Byte][unit];
        let whole = Quantity { nanos, format: Format::DecimalSi };
        let part = whole.divide(count, unit);
        prop_assert!(part.is_multiple_of(unit));
        let together = part.nanos * i128::from(count);
        prop_assert!(together <= nanos);
        let step = if unit == Unit::Byte && part.nanos >= MEBI * NANOS { MEBI * NANOS } else { unit.nanos() };
        prop_assert!(part.nanos % step == 0);
        prop_assert!(nanos - together < (i128::from(count) + 1) * step);
    }
}
