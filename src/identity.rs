//! Who is calling: passwords, tokens, suspension.
//!
//! Requests are authenticated from a snapshot alone ([`tokens`]); everything that changes an account goes through
//! [`accounts`], which answers only once the index has applied the change, so that what was acknowledged is what the
//! next request meets.

mod account_record;

pub mod accounts;
pub mod address;
pub mod backoff;
pub mod bootstrap;
pub mod last_used;
pub mod metadata;
pub mod passwords;
pub mod restoring;
pub mod tokens;

#[cfg(test)]
mod testing;
