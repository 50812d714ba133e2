//! Passwords: how they are kept, compared, and which are good enough.
//!
//! Argon2id in PHC format. One comparison takes tens of milliseconds and 19 MiB, so hashing has its own bounded place
//! on the blocking pool. For who is not there the same hash is computed in vain: time does not tell which names exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;
use zxcvbn::Score;

use super::tokens::base32;
use crate::resources::User;

/// Longest password, in bytes: a bound on work, far beyond any pass phrase.
pub const MAX_LENGTH: usize = 256;

/// What passwords cost and what is asked of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// Memory of one hash, in KiB (at least 8 a lane). The default, with the next two, is the recommendation of
    /// <https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html>.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
    /// Hashes computed at the same time; memory in use is at most this times `memory_kib`.
    pub concurrent: usize,
    /// Hashes that may wait for their turn; beyond these we answer that we are busy.
    pub waiting: usize,
    /// Least number of characters.
    pub min_length: usize,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self { memory_kib: 19 * 1024, passes: 2, lanes: 1, concurrent: 3, waiting: 64, min_length: 12 }
    }
}

/// Why a password was not accepted as a new one. Says what to improve, never what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Weakness {
    /// Too few characters.
    #[error("the password must have at least {least} characters; a few uncommon words make a good one")]
    TooShort {
        /// Least number of characters.
        least: usize,
    },
    /// Too many bytes.
    #[error("the password must have at most {MAX_LENGTH} bytes")]
    TooLong,
    /// Guessable; the text says by what and how to do better.
    #[error("the password is too easy to guess: {0}")]
    Guessable(String),
    /// The same as before.
    #[error("the new password must differ from the old one")]
    Unchanged,
}

/// Why nothing was hashed or compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Not good enough.
    #[error(transparent)]
    Weak(#[from] Weakness),
    /// Too many are waiting.
    #[error("too many sign-ins at the same time; try again in a few seconds")]
    Busy,
    /// The hash function or the blocking pool failed: no memory, no random bytes, or the process is going down.
    #[error("passwords cannot be processed: {0}")]
    Failed(String),
}

/// Outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not the password, or there is none.
    Wrong,
    /// The password.
    Right {
        /// Whether it was hashed with other parameters than those of today.
        outdated: bool,
    },
}

/// Hashes and compares.
pub struct Passwords {
    argon2: Argon2<'static>,
    running: Arc<Semaphore>,
    admitted: Arc<Semaphore>,
    computed: AtomicU64,
    min_length: usize,
}

impl Passwords {
    /// Ready to hash. Costs below Argon2's least are raised to it.
    pub fn new(policy: PasswordPolicy) -> Self {
        let PasswordPolicy { memory_kib, passes, lanes, concurrent, waiting, min_length } = policy;
        let lanes = lanes.clamp(Params::MIN_P_COST, 64);
        let memory_kib = memory_kib.max(Params::MIN_M_COST * lanes);
        let passes = passes.max(Params::MIN_T_COST);
        // Within these bounds there is nothing left to refuse.
        let params = Params::new(memory_kib, passes, lanes, None).unwrap_or_default();
        Self {
            argon2: Argon2::new(Algorithm::Argon2id, Version::V0x13, params),
            running: Arc::new(Semaphore::new(concurrent.max(1))),
            admitted: Arc::new(Semaphore::new(concurrent.max(1) + waiting)),
            computed: AtomicU64::new(0),
            min_length,
        }
    }

    /// How many hashes were begun since the start: the load that sign-ins are.
    pub fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// Compares. `stored` is absent where there is no such account, or none that may sign in: the work is the same,
    /// and the answer is always [`Verdict::Wrong`].
    pub async fn verify(&self, password: &str, stored: Option<&str>) -> Result<Verdict, PasswordError> {
        // No password is that long; what is compared instead does not matter, only that something is.
        let too_long = password.len() > MAX_LENGTH;
        let password = Zeroizing::new(if too_long { String::new() } else { password.to_owned() });
        let stored = stored.filter(|_| !too_long).map(|hash| Zeroizing::new(hash.to_owned()));
        let argon2 = self.argon2.clone();
        self.run(move || {
            let parsed = stored.as_deref().and_then(|text| PasswordHash::new(text).ok());
            let Some(hash) = parsed else {
                let in_vain: Result<PasswordHash, _> = argon2.hash_password_with_salt(password.as_bytes(), &[0; 16]);
                drop(std::hint::black_box(in_vain));
                return Ok(Verdict::Wrong);
            };
            let right = argon2.verify_password(password.as_bytes(), &hash).is_ok();
            let outdated = !Params::try_from(&hash).is_ok_and(|params| same_cost(&params, argon2.params()))
                || hash.algorithm != argon2::ARGON2ID_IDENT;
            Ok(if right { Verdict::Right { outdated } } else { Verdict::Wrong })
        })
        .await
    }

    /// Hashes without asking whether the password is good: for generated ones, and for those that are proven already.
    pub async fn hash(&self, password: &str) -> Result<Zeroizing<String>, PasswordError> {
        if password.len() > MAX_LENGTH {
            return Err(Weakness::TooLong.into());
        }
        let password = Zeroizing::new(password.to_owned());
        let argon2 = self.argon2.clone();
        self.run(move || hash(&argon2, &password)).await
    }

    /// Hashes a new password of `user`, if it is good enough.
    pub async fn hash_new(&self, password: &str, user: &User) -> Result<Zeroizing<String>, PasswordError> {
        if password.chars().count() < self.min_length {
            return Err(Weakness::TooShort { least: self.min_length }.into());
        }
        if password.len() > MAX_LENGTH {
            return Err(Weakness::TooLong.into());
        }
        let password = Zeroizing::new(password.to_owned());
        let about = words_about(user);
        let argon2 = self.argon2.clone();
        self.run(move || {
            check_strength(&password, &about)?;
            hash(&argon2, &password)
        })
        .await
    }

    /// Runs on the blocking pool when it is its turn. The permits go along: a caller that goes away leaves its hash
    /// running, and that hash still has its place.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let admitted = self.admitted.clone().try_acquire_owned().map_err(|_| PasswordError::Busy)?;
        let failed = |error: &dyn std::fmt::Display| PasswordError::Failed(error.to_string());
        let running = self.running.clone().acquire_owned().await.map_err(|e| failed(&e))?;
        let permits: [OwnedSemaphorePermit; 2] = [admitted, running];
        self.computed.fetch_add(1, Ordering::Relaxed);
        let task = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permits);
            result
        });
        task.await.map_err(|e| failed(&e))?
    }
}

/// A password for one use: 100 random bits in groups that can be read out and typed.
pub fn one_time_password() -> Result<Zeroizing<String>, getrandom::Error> {
    let mut bytes = Zeroizing::new([0u8; 13]);
    getrandom::fill(&mut *bytes)?;
    let mut letters = Zeroizing::new(String::with_capacity(24));
    base32(&*bytes, &mut letters);
    let mut password = Zeroizing::new(String::with_capacity(24));
    for (at, letter) in letters.chars().take(20).enumerate() {
        if at > 0 && at % 4 == 0 {
            password.push('-');
        }
        password.push(letter);
    }
    Ok(password)
}

fn hash(argon2: &Argon2<'_>, password: &str) -> Result<Zeroizing<String>, PasswordError> {
    let hash: PasswordHash =
        argon2.hash_password(password.as_bytes()).map_err(|e| PasswordError::Failed(e.to_string()))?;
    Ok(Zeroizing::new(hash.to_string()))
}

fn same_cost(a: &Params, b: &Params) -> bool {
    (a.m_cost(), a.t_cost(), a.p_cost()) == (b.m_cost(), b.t_cost(), b.p_cost())
}

/// What is known about the user and so must not carry the password.
fn words_about(user: &User) -> Vec<String> {
    let name = user.metadata.name.as_deref().unwrap_or_default();
    let display_name = user.spec.display_name.as_deref().unwrap_or_default();
    let email = user.spec.email.as_deref().unwrap_or_default();
    let whole = [name, display_name, email, "bailiwick"].into_iter();
    let parts = [name, display_name, email].into_iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
    // A bound: a display name may be long, and its hundredth word is nobody's password.
    whole.chain(parts).filter(|word| word.len() > 2).take(32).map(str::to_owned).collect()
}

fn check_strength(password: &str, about: &[String]) -> Result<(), Weakness> {
    let about: Vec<&str> = about.iter().map(String::as_str).collect();
    let estimate = zxcvbn::zxcvbn(password, &about);
    if estimate.score() >= Score::Three {
        return Ok(());
    }
    let mut advice = vec![];
    if let Some(feedback) = estimate.feedback() {
        advice.extend(feedback.warning().map(|warning| warning.to_string()));
        advice.extend(feedback.suggestions().iter().map(ToString::to_string));
    }
    if advice.is_empty() {
        advice.push("Add another word or two. Uncommon words are better.".to_owned());
    }
    Err(Weakness::Guessable(advice.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::UserSpec;

    /// The cheapest parameters that Argon2 has.
    fn cheap() -> PasswordPolicy {
        PasswordPolicy { memory_kib: 8, passes: 1, ..PasswordPolicy::default() }
    }

    fn passwords(policy: PasswordPolicy) -> Passwords {
        Passwords::new(policy)
    }

    fn jane() -> User {
        let spec = UserSpec {
            display_name: Some("Jane Featherstonehaugh".into()),
            email: Some("jane.featherstonehaugh@example.com".into()),
            ..UserSpec::default()
        };
        User::new("jane", spec)
    }

    const GOOD: &str = "walrus ticket orbit 61";

    #[tokio::test]
    async fn the_right_password_and_no_other() {
        let passwords = passwords(cheap());
        let hash = passwords.hash(GOOD).await.unwrap();
        assert_eq!(passwords.verify(GOOD, Some(&hash)).await, Ok(Verdict::Right { outdated: false }));
        for wrong in ["", "walrus ticket orbit 62", "walrus ticket orbit 61 ", &GOOD.to_uppercase()] {
            assert_eq!(passwords.verify(wrong, Some(&hash)).await, Ok(Verdict::Wrong), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn defaults_are_the_recommended_ones() {
        let hash = passwords(PasswordPolicy::default()).hash(GOOD).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", *hash);
    }

    #[tokio::test]
    async fn nobody_has_no_password() {
        let passwords = passwords(cheap());
        for password in ["", GOOD] {
            assert_eq!(passwords.verify(password, None).await, Ok(Verdict::Wrong));
            for broken in ["", "x", "$argon2id$", "$argon2id$v=19$m=8,t=1,p=1"] {
                assert_eq!(passwords.verify(password, Some(broken)).await, Ok(Verdict::Wrong), "{broken:?}");
            }
        }
    }

    #[tokio::test]
    async fn other_parameters_are_outdated() {
        let old = passwords(cheap());
        let new = passwords(PasswordPolicy { passes: 2, ..cheap() });
        let hash = old.hash(GOOD).await.unwrap();
        assert_eq!(new.verify(GOOD, Some(&hash)).await, Ok(Verdict::Right { outdated: true }));
        assert_eq!(new.verify("x", Some(&hash)).await, Ok(Verdict::Wrong));
    }

    #[tokio::test]
    async fn too_long_is_wrong_and_refused_as_new() {
        let passwords = passwords(cheap());
        let (longest, longer) = ("x".repeat(MAX_LENGTH), "x".repeat(MAX_LENGTH + 1));
        let hash = passwords.hash(&longest).await.unwrap();
        assert_eq!(passwords.verify(&longest, Some(&hash)).await, Ok(Verdict::Right { outdated: false }));
        assert_eq!(passwords.verify(&longer, Some(&hash)).await, Ok(Verdict::Wrong));
        assert_eq!(passwords.hash(&longer).await, Err(Weakness::TooLong.into()));
        // What stands in for a long password is no password either.
        let of_nothing = passwords.hash("").await.unwrap();
        assert_eq!(passwords.verify(&longer, Some(&of_nothing)).await, Ok(Verdict::Wrong));
    }

    #[tokio::test]
    async fn strong_ones_are_accepted_weak_ones_told_why() {
        let passwords = passwords(cheap());
        for good in [GOOD, "correct-giraffe-unbolts-teapot", "🦀 ferris dances on tables 🦀"] {
            assert!(passwords.hash_new(good, &jane()).await.is_ok(), "{good}");
        }
        assert_eq!(
            passwords.hash_new("Zq8&kf!p2wL", &jane()).await,
            Err(Weakness::TooShort { least: 12 }.into()),
            "eleven characters"
        );
        for guessable in ["password1234", "aaaaaaaaaaaaaaaa", "qwertyuiop12", "123456789012", "Featherstonehaugh1"] {
            let Err(PasswordError::Weak(Weakness::Guessable(advice))) = passwords.hash_new(guessable, &jane()).await
            else {
                panic!("{guessable} must be refused");
            };
            assert!(!advice.is_empty() && !advice.contains(guessable), "{advice}");
        }
        // The same word is a fair password of somebody else.
        assert!(passwords.hash_new("Featherstonehaugh1", &User::new("joe", UserSpec::default())).await.is_ok());
    }

    #[tokio::test]
    async fn beyond_the_queue_we_are_busy() {
        let passwords = passwords(PasswordPolicy { concurrent: 1, waiting: 1, ..cheap() });
        let first = passwords.admitted.clone().try_acquire_owned().unwrap();
        let second = passwords.admitted.clone().try_acquire_owned().unwrap();
        assert_eq!(passwords.verify(GOOD, None).await, Err(PasswordError::Busy));
        drop((first, second));
        assert_eq!(passwords.verify(GOOD, None).await, Ok(Verdict::Wrong));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn never_more_at_once_than_allowed() {
        use std::sync::atomic::AtomicUsize;
        let passwords = Arc::new(passwords(PasswordPolicy { concurrent: 2, waiting: 64, ..cheap() }));
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..20).map(|_| {
            let (passwords, now, most) = (passwords.clone(), now.clone(), most.clone());
            tokio::spawn(async move {
                let work = move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                };
                passwords.run(work).await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap().unwrap();
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[test]
    fn one_time_passwords_are_long_and_differ() {
        let (a, b) = (one_time_password().unwrap(), one_time_password().unwrap());
        assert_eq!(a.len(), 24);
        assert_ne!(a, b);
        assert!(check_strength(&a, &[]).is_ok());
    }

    #[tokio::test]
    async fn costs_below_the_least_are_raised() {
        let passwords = passwords(PasswordPolicy { memory_kib: 0, passes: 0, lanes: 0, ..cheap() });
        let hash = passwords.hash(GOOD).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{}", *hash);
    }
}
