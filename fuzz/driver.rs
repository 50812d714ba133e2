//! A fuzzer that runs as a test, on stable, for a bounded time.
//!
//! It replays the corpus of a target, then changes its inputs, several changes at a time, with the target's own words
//! among them. A target returns what happened, as a value that can be hashed; an input with a new outcome joins those
//! that are changed further. So it follows behaviour, where coverage would follow code. A panic ends it: the input is
//! kept and named. The same seed draws the same inputs.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest input.
const MAX_INPUT: usize = 4096;
/// Most inputs that are changed further.
const MAX_POOL: usize = 4096;
/// Longest that one input may take; generous, because other tests run beside this one.
const SLOWEST: Duration = Duration::from_secs(10);
/// How long a target is fuzzed without `BAILIWICK_FUZZ_SECONDS`.
const SECONDS: u64 = 4;

/// Fuzzes `test`, which panics where something does not hold.
pub(crate) fn run<R: Hash>(target: &str, words: &[&str], test: impl Fn(&[u8]) -> R) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pool = corpus(&root.join("fuzz/corpus").join(target));
    let mut random = Random(number("BAILIWICK_SEED", 1));
    let mut outcomes = HashSet::new();
    let mut tried = 0_u64;
    let mut one = |input: &[u8]| {
        tried += 1;
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| test(input)));
        let slow = begun.elapsed() > SLOWEST;
        match outcome {
            Ok(outcome) if !slow => {
                let mut hasher = DefaultHasher::new();
                outcome.hash(&mut hasher);
                outcomes.insert(hasher.finish())
            }
            failed => {
                let kept = keep(target, input);
                eprintln!("{target}: this input {}: {}", if slow { "is slow" } else { "fails" }, kept.display());
                eprintln!("{:?}", String::from_utf8_lossy(input));
                match failed {
                    Err(panic) => resume_unwind(panic),
                    Ok(_) => panic!("{target} took {:?} for one input", begun.elapsed()),
                }
            }
        }
    };
    for input in &pool {
        one(input);
    }
    let end = Instant::now() + Duration::from_secs(number("BAILIWICK_FUZZ_SECONDS", SECONDS));
    while Instant::now() < end {
        let input = random.changed(&pool, words);
        if one(&input) && pool.len() < MAX_POOL {
            pool.push(input);
        }
    }
    println!("{target}: {tried} inputs, {} outcomes", outcomes.len());
}

/// The inputs that are kept in the repository.
fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds an input", folder.display());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Writes an input down, so that it can be looked at and join the corpus.
fn keep(target: &str, input: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join("bailiwick-fuzz");
    fs::create_dir_all(&folder).unwrap();
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let file = folder.join(format!("{target}-{:016x}", hasher.finish()));
    fs::write(&file, input).unwrap();
    file
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or_default()
    }

    /// A range of an input.
    fn range(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(input.len() + 1);
        let most = (input.len() - start).min(1 << self.below(7));
        start..start + self.below(most + 1)
    }

    /// One of the inputs, changed.
    fn changed(&mut self, pool: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        let mut input = pool[self.below(pool.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut input, pool, words);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
        const BYTES: &[u8] = b"\0\t\n\r \"#%&'*+,-./:;<=>?@[\\]^_`{|}~09AZaz\x7f\x80\xc3\xff";
        let range = self.range(input);
        match self.below(10) {
            0 => drop(input.drain(range)),
            1 => {
                let again = input[range.clone()].to_vec();
                input.splice(range.start..range.start, again);
            }
            2 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] ^= 1 << self.below(8);
            }
            3 => {
                let byte = BYTES[self.below(BYTES.len())];
                input.splice(range, [byte]);
            }
            4 => {
                let bytes: Vec<u8> = (0..=self.below(4)).map(|_| self.next().to_le_bytes()[0]).collect();
                input.splice(range.start..range.start, bytes);
            }
            5 => {
                // A part of another input.
                let other = &pool[self.below(pool.len())];
                let part = self.range(other);
                input.splice(range, other[part].iter().copied());
            }
            6 => {
                // The end of another input.
                let other = &pool[self.below(pool.len())];
                let from = self.below(other.len() + 1);
                input.truncate(range.start);
                input.extend_from_slice(&other[from..]);
            }
            7 => {
                // The same text many times: depth and length.
                let again = input[range.clone()].repeat(1 << self.below(6));
                input.splice(range.start..range.start, again.into_iter().take(MAX_INPUT));
            }
            _ if !words.is_empty() => {
                let word = words[self.below(words.len())].as_bytes();
                let at = if self.below(2) == 0 { range.start..range.start } else { range };
                input.splice(at, word.iter().copied());
            }
            _ => input.truncate(range.start),
        }
    }
}

#[test]
fn a_failure_is_found_and_named() {
    let found = catch_unwind(|| {
        run("selftest", &["three"], |input| {
            let has = |word: &[u8]| input.windows(word.len()).any(|part| part == word);
            assert!(!(has(b"one") && has(b"two") && has(b"three")), "all three are there");
            (has(b"one"), has(b"two"), has(b"three"))
        });
    });
    let message = found.expect_err("one needs a word of the list, the other two a splice of the corpus");
    assert_eq!(message.downcast_ref::<&str>(), Some(&"all three are there"));
}
