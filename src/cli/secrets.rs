//! Passwords, from a prompt without echo or from standard input. Never from arguments, which every user of a machine
//! can read.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use zeroize::Zeroizing;

use super::exit::{Failure, Outcome};

/// Most that is read of standard input for passwords: two lines of the longest accepted length, amply.
const MAX_LINES: u64 = 16 << 10;

/// The lines of standard input, at most two.
pub fn lines() -> Outcome<Vec<Zeroizing<String>>> {
    lines_of(io::stdin().lock())
}

fn lines_of(from: impl Read) -> Outcome<Vec<Zeroizing<String>>> {
    let bad = |why: String| Failure::Usage(format!("standard input: {why}"));
    let mut text = Zeroizing::new(String::new());
    let read = from.take(MAX_LINES).read_to_string(&mut text);
    let read = read.map_err(|e| bad(e.to_string()))?;
    if read as u64 == MAX_LINES {
        return Err(bad("too long for passwords".to_owned()));
    }
    let lines: Vec<_> = text.lines().map(|line| Zeroizing::new(line.to_owned())).collect();
    match lines.as_slice() {
        [] => Err(bad("is empty, where a password is expected".to_owned())),
        [first, ..] if first.is_empty() => Err(bad("the first line is empty, where a password is expected".to_owned())),
        [_] | [_, _] => Ok(lines),
        _ => Err(bad("more than two lines".to_owned())),
    }
}

/// Asks for a password on the terminal.
pub fn ask(what: &str) -> Outcome<Zeroizing<String>> {
    need_terminal("--password-stdin")?;
    let password = rpassword::prompt_password(format!("{what}: ")).map(Zeroizing::new);
    let password = password.map_err(|e| Failure::Usage(format!("cannot read a password from the terminal: {e}")))?;
    if password.is_empty() { Err(Failure::Usage("nothing was entered".to_owned())) } else { Ok(password) }
}

/// Asks for a new password, twice.
pub fn ask_new(what: &str) -> Outcome<Zeroizing<String>> {
    let first = ask(what)?;
    let second = ask("Once more")?;
    if first == second { Ok(first) } else { Err(Failure::Usage("the two do not match".to_owned())) }
}

/// Asks for a name on the terminal.
pub fn ask_name(what: &str) -> Outcome<String> {
    need_terminal("--username")?;
    let mut line = String::new();
    let asked = write!(io::stderr(), "{what}: ").and_then(|()| io::stdin().lock().take(1 << 10).read_line(&mut line));
    asked.map_err(|e| Failure::Usage(format!("cannot read from the terminal: {e}")))?;
    let name = line.trim();
    if name.is_empty() { Err(Failure::Usage("nothing was entered".to_owned())) } else { Ok(name.to_owned()) }
}

fn need_terminal(flag: &str) -> Outcome {
    if io::stdin().is_terminal() {
        Ok(())
    } else {
        Err(Failure::Usage(format!("there is no terminal to ask on; use {flag}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<String>> {
        lines_of(text.as_bytes()).ok().map(|all| all.iter().map(|line| line.to_string()).collect())
    }

    #[test]
    fn one_or_two_lines_whatever_they_end_with() {
        assert_eq!(read("secret"), Some(vec!["secret".to_owned()]));
        assert_eq!(read("secret\r\n"), Some(vec!["secret".to_owned()]));
        assert_eq!(read(" old \nnew\n"), Some(vec![" old ".to_owned(), "new".to_owned()]));
        for bad in ["", "\n", "\nx", "a\nb\nc\n"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(read(&"x".repeat(20_000)), None);
        assert!(lines_of(&b"\xff\n"[..]).is_err());
    }
}
