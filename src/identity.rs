//! Who is calling: passwords, tokens, suspension.
//!
//! Requests are authenticated from a snapshot alone ([`tokens`]); everything that changes an account goes through
//! [`accounts`], which answers only once the index has applied the change, so that what was acknowledged is what the
//! next request meets.

pub mod tokens;
