//! Continue tokens: only those that we sealed open, byte for byte, and only for their question.

use super::*;
use crate::fuzz;

const WORDS: &[&str] = &["A", "_", "-", "=", "==", "+", "/", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "\0", " ", "?"];

#[test]
fn fuzz_continue_tokens() {
    let tokens = Tokens::default();
    let place = Place { revision: "17".into(), set: SetId::of_nothing(), namespace: "shop-web".into(), inner: None };
    let real = tokens.seal(&place, "jane pods").unwrap();
    fuzz::run("tokens", WORDS, |input| {
        // Beside the input itself, a real token with the input laid over it somewhere.
        let text = String::from_utf8_lossy(input).into_owned();
        let at = input.first().map_or(0, |first| usize::from(*first) % (real.len() + 1));
        let tail = real.get(at + text.len()..).unwrap_or_default();
        let mut opened = 0;
        for token in
            [text.clone(), format!("{}{text}{tail}", &real[..at]), format!("{}{text}{}", &real[..at], &real[at..])]
        {
            assert!(tokens.open(&token, "joe pods").is_err());
            if let Ok(found) = tokens.open(&token, "jane pods") {
                assert_eq!((&token, &found), (&real, &place));
                opened += 1;
            }
        }
        (opened, text.len() > LONGEST, text.is_ascii())
    });
}
