//! The first administrator and the way back in.

use super::*;
use crate::identity::accounts::{AccountPolicy, LoginError};
use crate::identity::testing::{BETTER, GOOD, HERE, World, at, policy};
use crate::resources::token::Audience;

fn given(password: &str) -> Option<Zeroizing<String>> {
    Some(Zeroizing::new(password.to_owned()))
}

/// Names of those who administer the platform.
fn administrators(world: &World) -> Vec<String> {
    let snapshot = world.index.snapshot();
    let mut names: Vec<String> = snapshot
        .users
        .iter()
        .filter(|(_, user)| snapshot.holdings(&user.object, at(0)).any(|grant| is_administration(&grant.object.spec)))
        .map(|(name, _)| name.to_string())
        .collect();
    names.sort();
    names
}

async fn bootstrapped(world: &World) -> Zeroizing<String> {
    match world.accounts.ensure_bootstrap("admin", None).await.unwrap() {
        Bootstrap::Created { generated: Some(Generated(password)) } => password,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_start_makes_one_administrator() {
    let world = World::new().await;
    let password = bootstrapped(&world).await;
    assert_eq!(administrators(&world), ["admin"]);
    assert_eq!(world.index.snapshot().global_epoch, 1);

    let login = |new| world.accounts.login("admin", &password, new, HERE, at(0));
    assert!(matches!(login(None).await, Err(LoginError::PasswordChangeRequired)));
    let token = login(Some(GOOD)).await.unwrap();
    assert!(world.lives(&token, at(0)));
    assert_eq!(token.record.global_epoch, 1);

    let before = world.store.revision().await.unwrap();
    assert_eq!(world.accounts.ensure_bootstrap("admin", given("other")).await.unwrap(), Bootstrap::Exists);
    assert_eq!(world.accounts.ensure_bootstrap("second", None).await.unwrap(), Bootstrap::Exists);
    assert_eq!(world.store.revision().await.unwrap(), before, "nothing was written");
}

#[tokio::test]
async fn a_given_password_may_be_weak_and_must_change_unless_told() {
    let world = World::new().await;
    let made = world.accounts.ensure_bootstrap("admin", given("admin")).await.unwrap();
    assert_eq!(made, Bootstrap::Created { generated: None });
    let login = world.accounts.login("admin", "admin", None, HERE, at(0)).await;
    assert!(matches!(login, Err(LoginError::PasswordChangeRequired)));

    let world = World::with(AccountPolicy { bootstrap_must_change: false, ..policy() }).await;
    world.accounts.ensure_bootstrap("admin", given("admin")).await.unwrap();
    assert!(world.accounts.login("admin", "admin", None, HERE, at(0)).await.is_ok());
}

#[tokio::test]
async fn a_suspended_administrator_is_not_made_anew() {
    let world = World::new().await;
    bootstrapped(&world).await;
    world.accounts.suspend("admin", "other", "", at(0)).await.unwrap();
    assert_eq!(world.accounts.ensure_bootstrap("admin", None).await.unwrap(), Bootstrap::Exists);
    assert!(world.account("admin").await.unwrap().content.suspended.is_some());
}

#[tokio::test]
async fn a_user_of_the_name_is_not_made_administrator() {
    let world = World::new().await;
    world.person("admin").await;
    assert_eq!(world.accounts.ensure_bootstrap("admin", None).await.unwrap(), Bootstrap::NameTaken);
    assert!(administrators(&world).is_empty());
    assert!(world.accounts.login("admin", GOOD, None, HERE, at(0)).await.is_ok(), "untouched");
    for name in ["", "Admin", "a/b"] {
        assert!(matches!(world.accounts.ensure_bootstrap(name, None).await, Err(AccountError::Invalid { .. })));
    }
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_taken_up() {
    let world = World::new().await;
    bootstrapped(&world).await;
    // As if the process had ended before the user was written: account and grant are of nobody.
    world.delete(Kind::User, "admin").await;
    assert!(administrators(&world).is_empty());
    let password = bootstrapped(&world).await;
    assert_eq!(administrators(&world), ["admin"]);
    assert!(world.accounts.login("admin", &password, Some(GOOD), HERE, at(0)).await.is_ok());
    assert_eq!(world.index.snapshot().grants.len(), 1, "the left-over grant was replaced");
}

#[tokio::test]
async fn an_epoch_that_does_not_open_is_left_alone() {
    let world = World::new().await;
    world.put_bytes(Kind::Platform, EPOCH, b"{}".to_vec()).await;
    assert!(matches!(world.accounts.ensure_bootstrap("admin", None).await, Err(AccountError::Seal(_))));
    assert!(world.index.snapshot().users.is_empty());
}

#[tokio::test]
async fn recovery_lets_a_locked_out_administrator_in() {
    let world = World::new().await;
    let first = bootstrapped(&world).await;
    let old = world.accounts.login("admin", &first, Some(GOOD), HERE, at(0)).await.unwrap();
    // All at once: suspended, disabled, the grant deleted.
    world.accounts.suspend("admin", "mallory", "", at(0)).await.unwrap();
    let mut user = world.index.snapshot().users.get("admin").unwrap().object.clone();
    user.spec.disabled = true;
    world.put(Kind::User, "admin", &user).await;
    world.delete(Kind::Grant, PLATFORM_GRANT).await;

    let password = recover_admin(&*world.store, &world.sealer, "admin").await.unwrap();
    world.settle().await;
    assert_eq!(administrators(&world), ["admin"]);
    let token = world.accounts.login("admin", &password, Some(BETTER), HERE, at(100)).await.unwrap();
    assert!(world.lives(&token, at(100)));
    assert!(!world.lives(&old, at(100)), "whoever had credentials has them no more");
    assert!(world.accounts.login("admin", GOOD, None, HERE, at(200)).await.is_err());
}

#[tokio::test]
async fn recovery_of_one_in_good_standing_writes_no_second_grant() {
    let world = World::new().await;
    bootstrapped(&world).await;
    let token = world.accounts.issue("admin", world.new_token(Audience::Kube), at(0)).await.unwrap();
    let user = world.index.snapshot().users.get("admin").unwrap().revision;
    recover_admin(&*world.store, &world.sealer, "admin").await.unwrap();
    world.settle().await;
    let snapshot = world.index.snapshot();
    assert_eq!((snapshot.grants.len(), snapshot.users.get("admin").unwrap().revision), (1, user));
    assert!(!world.lives(&token, at(0)));
    assert!(world.account("admin").await.unwrap().content.must_change);
}

#[tokio::test]
async fn recovery_makes_whoever_the_host_names() {
    let world = World::new().await;
    bootstrapped(&world).await;
    world.person("jane").await;
    for name in ["jane", "new-admin"] {
        let password = recover_admin(&*world.store, &world.sealer, name).await.unwrap();
        world.settle().await;
        assert!(administrators(&world).contains(&name.to_owned()));
        assert!(world.accounts.login(name, &password, Some(GOOD), HERE, at(0)).await.is_ok(), "{name}");
    }
    world.machine("ci").await;
    assert!(matches!(recover_admin(&*world.store, &world.sealer, "ci").await, Err(AccountError::Machine)));
    assert_eq!(administrators(&world), ["admin", "jane", "new-admin"]);
}

#[tokio::test]
async fn recovery_replaces_an_account_that_does_not_open() {
    let world = World::new().await;
    bootstrapped(&world).await;
    let token = world.accounts.issue("admin", world.new_token(Audience::Kube), at(0)).await.unwrap();
    world.put_bytes(Kind::Account, "admin", b"{}".to_vec()).await;
    let password = recover_admin(&*world.store, &world.sealer, "admin").await.unwrap();
    world.settle().await;
    assert!(world.accounts.login("admin", &password, Some(GOOD), HERE, at(0)).await.is_ok());
    assert!(!world.lives(&token, at(0)));
}

#[tokio::test]
async fn generated_passwords_do_not_print_themselves() {
    let world = World::new().await;
    let made = world.accounts.ensure_bootstrap("admin", None).await.unwrap();
    let Bootstrap::Created { generated: Some(Generated(password)) } = &made else { panic!("{made:?}") };
    assert!(!format!("{made:?}").contains(&**password));
}
