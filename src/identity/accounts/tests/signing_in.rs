//! Signing in: who is let in, and that the refused cannot tell why.

use std::net::IpAddr;

use crate::identity::accounts::{AccountPolicy, LoginError};
use crate::identity::backoff::BackoffPolicy;
use crate::identity::passwords::{PasswordPolicy, Weakness};
use crate::identity::testing::{BETTER, GOOD, HERE, World, at, policy};
use crate::resources::UserSpec;
use crate::resources::token::Audience;
use crate::store::Kind;

/// An address from which nobody has failed yet.
fn elsewhere(n: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, n))
}

#[tokio::test]
async fn the_right_password_gives_an_api_token() {
    let world = World::new().await;
    world.person("jane").await;
    let token = world.accounts.login("jane", GOOD, None, HERE, at(0)).await.unwrap();
    assert_eq!(token.record.audience, Audience::Api);
    let caller = world.authenticate(&token.secret_token, Audience::Api, at(0)).unwrap();
    assert_eq!(caller.user.object.metadata.name.as_deref(), Some("jane"));
    assert!(world.lives(&token, at(12 * 3600 - 1)) && !world.lives(&token, at(12 * 3600)));
    let last_login = world.account("jane").await.unwrap().content.last_login.clone();
    assert_eq!(last_login, Some(crate::clock::rfc3339(at(0))));

    let second = world.accounts.login("jane", GOOD, None, HERE, at(1)).await.unwrap();
    assert_ne!(token.record.family, second.record.family, "each sign-in is a family");
    assert!(world.lives(&token, at(1)), "one sign-in does not end another");
}

#[tokio::test]
async fn all_refusals_look_the_same() {
    let world = World::new().await;
    world.person("jane").await;
    world.machine("ci").await;
    world.user("nopassword").await;
    world.person("suspended").await;
    world.accounts.suspend("suspended", "root", "", at(0)).await.unwrap();
    let mut disabled = world.person("disabled").await;
    disabled.spec.disabled = true;
    world.put(Kind::User, "disabled", &disabled).await;
    world.person("broken").await;
    world.put_bytes(Kind::Account, "broken", b"{}".to_vec()).await;

    let cases = [
        ("jane", BETTER),
        ("ghost", GOOD),
        ("ci", GOOD),
        ("nopassword", GOOD),
        ("suspended", GOOD),
        ("", ""),
        ("disabled", GOOD),
        ("broken", GOOD),
        ("jane", ""),
        ("Jane", GOOD),
        ("jane\0", GOOD),
    ];
    let mut messages = std::collections::BTreeSet::new();
    for (n, (user, password)) in cases.into_iter().enumerate() {
        let before = world.accounts.passwords().computed();
        let error = world.accounts.login(user, password, None, elsewhere(n as u8), at(1)).await.unwrap_err();
        assert!(matches!(error, LoginError::Refused), "{user:?}: {error:?}");
        assert_eq!(world.accounts.passwords().computed() - before, 1, "{user:?}: one hash, whatever the reason");
        messages.insert(error.to_string());
    }
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(world.accounts.login("jane", GOOD, None, HERE, at(1)).await.is_ok());
}

#[tokio::test]
async fn a_password_that_must_change_lets_in_only_with_a_new_one() {
    let world = World::new().await;
    world.user("jane").await;
    world.accounts.set_password("jane", GOOD, true).await.unwrap();
    let login = |new| world.accounts.login("jane", GOOD, new, HERE, at(0));
    assert!(matches!(login(None).await, Err(LoginError::PasswordChangeRequired)));
    assert!(matches!(login(Some(GOOD)).await, Err(LoginError::Weak(Weakness::Unchanged))));
    assert!(matches!(login(Some("jane")).await, Err(LoginError::Weak(Weakness::TooShort { .. }))));
    assert!(matches!(login(Some("password1234")).await, Err(LoginError::Weak(Weakness::Guessable(_)))));
    // With a wrong password nothing is said of the need, and nothing set.
    let wrong = world.accounts.login("jane", "wrong", Some(BETTER), HERE, at(0)).await;
    assert!(matches!(wrong, Err(LoginError::Refused)));

    let token = login(Some(BETTER)).await.unwrap();
    assert!(world.lives(&token, at(0)));
    assert!(matches!(login(None).await, Err(LoginError::Refused)), "the old one is gone");
    assert!(world.accounts.login("jane", BETTER, None, HERE, at(0)).await.is_ok());
    assert!(!world.account("jane").await.unwrap().content.must_change);
}

#[tokio::test]
async fn changing_the_own_password_ends_everything_before() {
    let world = World::new().await;
    world.person("jane").await;
    let old = world.accounts.login("jane", GOOD, None, HERE, at(0)).await.unwrap();
    let wrong = world.accounts.change_password("jane", BETTER, BETTER, HERE, at(0)).await;
    assert!(matches!(wrong, Err(LoginError::Refused)));
    let same = world.accounts.change_password("jane", GOOD, GOOD, HERE, at(0)).await;
    assert!(matches!(same, Err(LoginError::Weak(Weakness::Unchanged))));
    assert!(world.lives(&old, at(0)));

    world.accounts.change_password("jane", GOOD, BETTER, HERE, at(0)).await.unwrap();
    assert!(!world.lives(&old, at(0)));
    assert!(world.accounts.login("jane", GOOD, None, HERE, at(0)).await.is_err());
    assert!(world.accounts.login("jane", BETTER, None, HERE, at(0)).await.is_ok());
}

#[tokio::test]
async fn guessing_is_held_back_here_and_not_elsewhere() {
    let world = World::new().await;
    world.person("jane").await;
    let free = BackoffPolicy::default().pair.free;
    for _ in 0..=free {
        let error = world.accounts.login("jane", "wrong", None, HERE, at(0)).await.unwrap_err();
        assert!(matches!(error, LoginError::Refused));
    }
    let held = world.accounts.login("jane", GOOD, None, HERE, at(0)).await.unwrap_err();
    assert!(matches!(held, LoginError::BackingOff(wait) if wait.seconds == 1), "{held:?}");
    assert!(world.accounts.login("jane", GOOD, None, elsewhere(1), at(0)).await.is_ok());
    assert!(world.accounts.login("jane", GOOD, None, HERE, at(1)).await.is_ok(), "after the wait");
}

#[tokio::test]
async fn names_that_do_not_exist_are_held_back_just_the_same() {
    let world = World::new().await;
    let mut answers = vec![];
    for _ in 0..10 {
        answers.push(world.accounts.login("ghost", "x", None, HERE, at(0)).await.unwrap_err().to_string());
    }
    world.person("jane").await;
    for (n, answer) in answers.iter().enumerate() {
        let error = world.accounts.login("jane", "x", None, elsewhere(1), at(0)).await.unwrap_err();
        assert_eq!(error.to_string(), *answer, "attempt {n}");
    }
}

#[tokio::test]
async fn outdated_hashes_are_made_anew_at_sign_in() {
    let world = World::new().await;
    world.person("jane").await;
    let before = world.account("jane").await.unwrap().content;
    let stronger = PasswordPolicy { passes: 2, ..policy().passwords };
    let accounts = world.accounts_with(AccountPolicy { passwords: stronger, ..policy() });
    let token = accounts.login("jane", GOOD, None, HERE, at(0)).await.unwrap();
    let after = world.account("jane").await.unwrap().content;
    assert!(after.password.as_ref().unwrap().contains("t=2"), "{:?}", after.password);
    assert_eq!(after.epoch, before.epoch, "the password is the same, nothing ends");
    assert!(world.lives(&token, at(0)));
    assert!(accounts.login("jane", GOOD, None, HERE, at(0)).await.is_ok());
}

#[tokio::test]
async fn sign_ins_are_bounded_and_the_oldest_gives_way() {
    let world = World::with(AccountPolicy { max_sign_ins: 2, max_tokens: 1, ..policy() }).await;
    world.person("jane").await;
    let kube = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    let mut tokens = vec![];
    for second in 0..3 {
        tokens.push(world.accounts.login("jane", GOOD, None, HERE, at(second)).await.unwrap());
    }
    let alive: Vec<bool> = tokens.iter().map(|token| world.lives(token, at(3))).collect();
    assert_eq!(alive, [false, true, true]);
    assert!(world.lives(&kube, at(3)), "who has used up all tokens can still sign in");
}

#[tokio::test]
async fn names_of_the_user_make_no_password() {
    let world = World::new().await;
    let spec = UserSpec { display_name: Some("Jane Featherstonehaugh".into()), ..UserSpec::default() };
    world.create_user("jane", spec).await;
    let result = world.accounts.set_password("jane", "Featherstonehaugh1", false).await;
    assert!(result.is_err());
}
