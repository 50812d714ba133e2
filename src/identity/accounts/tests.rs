//! Suspension, passwords and the record behind them. Child modules: signing in, tokens, races, random histories.

use super::*;
use crate::identity::testing::{BETTER, GOOD, HERE, World, at};
use crate::store::{Key, Kind};

mod histories;
mod issuing;
mod races;
mod signing_in;

#[tokio::test]
async fn suspension_kills_what_was_issued_for_good() {
    let world = World::new().await;
    world.user("jane").await;
    let old = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    assert!(world.lives(&old, at(0)));

    world.accounts.suspend("jane", "root", "left the company", at(1)).await.unwrap();
    assert!(!world.lives(&old, at(1)));
    let refused = world.accounts.issue("jane", world.new_token(Audience::Kube), at(1)).await;
    assert!(matches!(refused, Err(AccountError::MayNotAct)));

    world.accounts.resume("jane", at(2)).await.unwrap();
    assert!(!world.lives(&old, at(2)), "dead for good");
    let new = world.accounts.issue("jane", world.new_token(Audience::Kube), at(2)).await.unwrap();
    assert!(world.lives(&new, at(2)));
}

#[tokio::test]
async fn suspending_again_and_resuming_again_change_nothing() {
    let world = World::new().await;
    world.user("jane").await;
    world.accounts.resume("jane", at(0)).await.unwrap();
    assert!(world.account("jane").await.is_none(), "nothing to resume, nothing written");

    world.accounts.suspend("jane", "root", "first", at(1)).await.unwrap();
    let first = world.account("jane").await.unwrap();
    world.accounts.suspend("jane", "other", "second", at(2)).await.unwrap();
    let second = world.account("jane").await.unwrap();
    assert_eq!((first.version, first.content.epoch), (second.version, second.content.epoch));
    assert_eq!(second.content.suspended.as_ref().unwrap().reason, "first");

    world.accounts.resume("jane", at(3)).await.unwrap();
    world.accounts.resume("jane", at(4)).await.unwrap();
    let resumed = world.account("jane").await.unwrap().content;
    assert_eq!((resumed.epoch, resumed.suspended.is_none()), (1, true));
}

#[tokio::test]
async fn suspension_creates_the_record_and_keeps_an_existing_one() {
    let world = World::new().await;
    world.user("jane").await;
    world.accounts.suspend("jane", "root", "", at(0)).await.unwrap();
    assert_eq!(world.account("jane").await.unwrap().content.epoch, 1);

    world.person("joe").await;
    let before = world.account("joe").await.unwrap();
    world.accounts.suspend("joe", "root", "", at(0)).await.unwrap();
    let after = world.account("joe").await.unwrap();
    assert_eq!(after.content.password, before.content.password);
    assert_eq!((after.version, after.content.epoch), (before.version + 1, before.content.epoch + 1));
}

#[tokio::test]
async fn nobody_is_suspended_who_does_not_exist() {
    let world = World::new().await;
    for name in ["ghost", "", "../x"] {
        let result = world.accounts.suspend(name, "root", "", at(0)).await;
        assert!(matches!(result, Err(AccountError::UserNotFound(_))), "{name:?}");
        assert!(world.account(name).await.is_none());
    }
}

#[tokio::test]
async fn raising_the_epoch_kills_without_suspending() {
    let world = World::new().await;
    let mut jane = world.user("jane").await;
    let old = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    jane.spec.disabled = true;
    world.put(Kind::User, "jane", &jane).await;
    assert!(!world.lives(&old, at(0)));
    world.accounts.raise_epoch("jane").await.unwrap();
    jane.spec.disabled = false;
    world.put(Kind::User, "jane", &jane).await;
    assert!(!world.lives(&old, at(0)), "enabling revives nothing");
    let new = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    assert!(world.lives(&new, at(0)));
}

#[tokio::test]
async fn a_name_that_came_back_inherits_nothing() {
    let world = World::new().await;
    world.person("jane").await;
    world.accounts.suspend("jane", "root", "", at(0)).await.unwrap();
    let old = world.account("jane").await.unwrap();
    world.delete(Kind::User, "jane").await;
    let stranger = world.user("jane").await;

    // Not suspended, although the record says that somebody of this name was.
    let early = world.accounts.issue("jane", world.new_token(Audience::Kube), at(1)).await.unwrap();
    assert!(world.lives(&early, at(1)));
    let login = world.accounts.login("jane", GOOD, None, HERE, at(1)).await;
    assert!(matches!(login, Err(LoginError::Refused)), "the password was somebody else's");

    world.accounts.set_password("jane", BETTER, false).await.unwrap();
    let new = world.account("jane").await.unwrap();
    assert_eq!(Some(&new.uid), stranger.metadata.uid.as_ref());
    assert_eq!(Some(&new.content.user_uid), stranger.metadata.uid.as_ref());
    assert!(new.content.epoch > old.content.epoch && new.version > old.version);
    assert!(new.content.suspended.is_none());
    assert!(!world.lives(&early, at(1)), "a new password ends what was issued before");
}

#[tokio::test]
async fn passwords_of_people_must_be_strong_and_machines_have_none() {
    let world = World::new().await;
    world.user("jane").await;
    world.machine("ci").await;
    let token = world.accounts.issue("jane", world.new_token(Audience::Api), at(0)).await.unwrap();

    assert!(matches!(world.accounts.set_password("jane", "password1234", false).await, Err(AccountError::Weak(_))));
    assert!(world.lives(&token, at(0)), "nothing happened");
    assert!(matches!(world.accounts.set_password("ci", GOOD, false).await, Err(AccountError::Machine)));
    assert!(matches!(world.accounts.set_password("ghost", GOOD, false).await, Err(AccountError::UserNotFound(_))));

    world.accounts.set_password("jane", GOOD, true).await.unwrap();
    assert!(!world.lives(&token, at(0)));
    assert!(world.account("jane").await.unwrap().content.must_change);
}

#[tokio::test]
async fn a_record_that_does_not_open_is_never_overwritten() {
    let world = World::new().await;
    world.user("jane").await;
    let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    world.put_bytes(Kind::Account, "jane", b"{}".to_vec()).await;
    assert!(!world.lives(&token, at(0)));
    assert!(matches!(world.accounts.suspend("jane", "root", "", at(0)).await, Err(AccountError::Seal(_))));
    assert!(matches!(world.accounts.set_password("jane", GOOD, false).await, Err(AccountError::Seal(_))));
    assert!(matches!(
        world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await,
        Err(AccountError::MayNotAct)
    ));
    let stored = world.store.get(&Key::new(Kind::Account, "jane")).await.unwrap().unwrap();
    assert_eq!(&stored.value[..], b"{}");
}

#[tokio::test]
async fn nothing_is_given_out_while_the_store_is_out_of_reach() {
    let world = World::new().await;
    world.person("jane").await;
    assert!(world.accounts.login("jane", GOOD, None, HERE, at(0)).await.is_ok());
    world.lose_store().await;
    // The right password and a wrong one get the same answer.
    for password in [GOOD, BETTER] {
        let login = world.accounts.login("jane", password, None, HERE, at(0)).await;
        assert!(matches!(login, Err(LoginError::Failed(AccountError::Stale))), "{login:?}");
    }
    let issue = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await;
    assert!(matches!(issue, Err(AccountError::Stale)));
    assert!(matches!(world.accounts.suspend("jane", "root", "", at(0)).await, Err(AccountError::Store(_))));
}
