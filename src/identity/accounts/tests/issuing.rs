//! Issue and revocation: limits, lifetimes, scopes, removal.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::by_hand::Hands;
use crate::identity::accounts::{AccountError, AccountPolicy, Wider};
use crate::identity::testing::{GOOD, HERE, World, at, policy};
use crate::identity::tokens::{IssuedToken, NewToken};
use crate::index::TokenEntry;
use crate::records::{Scoped, TokenScopes};
use crate::resources::token::Audience;
use crate::store::{Key, Kind};

fn entry(world: &World, token: &IssuedToken) -> Arc<TokenEntry> {
    world.index.snapshot().tokens.get(token.id.as_str()).unwrap().clone()
}

fn lasting(world: &World, audience: Audience, seconds: u64) -> NewToken {
    NewToken { expires_in: Duration::from_secs(seconds), ..world.new_token(audience) }
}

fn scoped(name: &str) -> Scoped {
    Scoped { name: name.into(), uid: format!("uid-{name}") }
}

fn limited(world: &World, cluster: &str) -> NewToken {
    let scopes = TokenScopes { clusters: vec![scoped(cluster)], ..TokenScopes::default() };
    NewToken { scopes, ..world.new_token(Audience::Kube) }
}

#[tokio::test]
async fn what_is_asked_for_is_what_is_stored() {
    let world = World::new().await;
    let jane = world.user("jane").await;
    let scopes = TokenScopes { clusters: vec![scoped("demo")], projects: vec![scoped("shop")], read_only: true };
    let new = NewToken { scopes: scopes.clone(), family: Some("f1".into()), ..world.new_token(Audience::Kube) };
    let token = world.accounts.issue("jane", new, at(0)).await.unwrap();
    let caller = world.authenticate(&token.secret_token, Audience::Kube, at(0)).unwrap();
    let record = &caller.token.record;
    assert_eq!((&record.scopes, record.family.as_str(), record.description.as_str()), (&scopes, "f1", "test"));
    assert_eq!(Some(&record.user_uid), jane.metadata.uid.as_ref());
    assert_eq!(caller.token.expires_at, at(3600));
    let stored = world.store.get(&Key::new(Kind::Token, token.id.as_str())).await.unwrap().unwrap();
    let secret = token.secret_token.rsplit_once('_').unwrap().1;
    assert!(!String::from_utf8_lossy(&stored.value).contains(secret));
}

#[tokio::test]
async fn lifetimes_are_bounded_by_audience() {
    let world = World::new().await;
    world.user("jane").await;
    let day = 24 * 3600;
    for (audience, max) in [(Audience::Kube, 90 * day), (Audience::Api, 30 * day)] {
        assert!(world.accounts.issue("jane", lasting(&world, audience, max), at(0)).await.is_ok());
        for bad in [0, max + 1, u64::MAX] {
            let result = world.accounts.issue("jane", lasting(&world, audience, bad), at(0)).await;
            assert!(matches!(result, Err(AccountError::Lifetime { .. })), "{bad}");
        }
    }
    assert_eq!(world.accounts.default_lifetime(None, Audience::Kube, at(0)).as_secs(), 30 * day);
    assert_eq!(world.accounts.default_lifetime(None, Audience::Api, at(0)).as_secs(), 12 * 3600);
}

#[tokio::test]
async fn the_limit_counts_live_tokens_only() {
    let world = World::with(AccountPolicy { max_tokens: 2, ..policy() }).await;
    world.user("jane").await;
    let issue = |seconds, now| world.accounts.issue("jane", lasting(&world, Audience::Kube, seconds), at(now));
    let short = issue(10, 0).await.unwrap();
    let long = issue(1000, 0).await.unwrap();
    assert!(matches!(issue(10, 9).await, Err(AccountError::TooManyTokens { max: 2 })));
    let third = issue(1000, 10).await.unwrap();
    world.settle().await;
    assert!(!world.index.snapshot().tokens.contains_key(short.id.as_str()), "the ended one is removed");
    assert!(matches!(issue(10, 10).await, Err(AccountError::TooManyTokens { .. })));

    world.accounts.revoke(&long.id).await.unwrap();
    assert!(issue(1000, 11).await.is_ok());
    assert!(world.lives(&third, at(11)));
    // Those of an older epoch are dead and do not count.
    world.accounts.raise_epoch("jane").await.unwrap();
    assert!(issue(1000, 12).await.is_ok() && issue(1000, 12).await.is_ok());
    assert!(issue(1000, 12).await.is_err());
    world.user("joe").await;
    assert!(world.accounts.issue("joe", world.new_token(Audience::Kube), at(12)).await.is_ok());
}

#[tokio::test]
async fn continuing_a_login_family_is_no_way_round_the_limit() {
    let world = World::with(AccountPolicy { max_tokens: 1, ..policy() }).await;
    world.person("jane").await;
    let login = world.accounts.login("jane", GOOD, None, HERE, at(0)).await.unwrap();
    let again = NewToken { family: Some(login.record.family.clone()), ..world.new_token(Audience::Kube) };
    assert!(world.accounts.issue("jane", again.clone(), at(0)).await.is_ok());
    assert!(matches!(world.accounts.issue("jane", again, at(0)).await, Err(AccountError::TooManyTokens { .. })));
}

#[tokio::test]
async fn only_those_who_may_act_get_tokens() {
    let world = World::new().await;
    let mut jane = world.user("jane").await;
    world.machine("ci").await;
    assert!(world.accounts.issue("ci", world.new_token(Audience::Kube), at(0)).await.is_ok());
    jane.spec.disabled = true;
    world.put(Kind::User, "jane", &jane).await;
    let result = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await;
    assert!(matches!(result, Err(AccountError::MayNotAct)));
    let result = world.accounts.issue("ghost", world.new_token(Audience::Kube), at(0)).await;
    assert!(matches!(result, Err(AccountError::UserNotFound(_))));
}

#[tokio::test]
async fn a_limited_token_makes_only_narrower_ones() {
    let world = World::new().await;
    world.user("jane").await;
    world.machine("ci").await;
    let parent = world.accounts.issue("jane", limited(&world, "a"), at(0)).await.unwrap();
    let parent = entry(&world, &parent);
    let same = NewToken { expires_in: Duration::from_secs(600), ..limited(&world, "a") };
    assert!(world.accounts.issue_for(&parent, "jane", same.clone(), at(0)).await.is_ok());
    assert!(world.accounts.issue_for(&parent, "ci", same, at(0)).await.is_ok());
    for target in ["jane", "ci"] {
        let wider = world.accounts.issue_for(&parent, target, world.new_token(Audience::Kube), at(0)).await;
        assert!(matches!(wider, Err(AccountError::Wider(Wider::Clusters(_)))), "{target}");
        let other = world.accounts.issue_for(&parent, target, limited(&world, "b"), at(0)).await;
        assert!(matches!(other, Err(AccountError::Wider(Wider::Clusters(_)))));
        let longer = NewToken { expires_in: Duration::from_secs(3601), ..limited(&world, "a") };
        let longer = world.accounts.issue_for(&parent, target, longer, at(0)).await;
        assert!(matches!(longer, Err(AccountError::Wider(Wider::Expiry(_)))));
    }
    // The default fits in what is left.
    let later = at(0) + jiff::SignedDuration::from_millis(1_500);
    let default = world.accounts.default_lifetime(Some(&parent), Audience::Kube, later);
    let new = NewToken { expires_in: default, ..limited(&world, "a") };
    let token = world.accounts.issue_for(&parent, "jane", new, later).await.unwrap();
    assert!(entry(&world, &token).expires_at <= parent.expires_at);

    let unlimited = world.accounts.issue("jane", lasting(&world, Audience::Api, 60), at(0)).await.unwrap();
    let unlimited = entry(&world, &unlimited);
    assert!(world.accounts.issue_for(&unlimited, "jane", world.new_token(Audience::Kube), at(0)).await.is_ok());
}

#[tokio::test]
async fn a_dead_token_makes_none() {
    let world = World::new().await;
    world.user("jane").await;
    let issue = async |seconds| {
        let token = world.accounts.issue("jane", lasting(&world, Audience::Api, seconds), at(0)).await.unwrap();
        entry(&world, &token)
    };
    let try_with = async |caller: &Arc<TokenEntry>, now| {
        world.accounts.issue_for(caller, "jane", world.new_token(Audience::Kube), at(now)).await
    };
    let revoked = issue(60).await;
    assert!(try_with(&revoked, 0).await.is_ok());
    world.accounts.revoke(&revoked.record.id).await.unwrap();
    assert!(matches!(try_with(&revoked, 0).await, Err(AccountError::CallerEnded)));

    let short = issue(5).await;
    assert!(matches!(try_with(&short, 5).await, Err(AccountError::CallerEnded)));

    // Suspended and resumed since: the new epoch must not be handed to a credential of the old one.
    let old = issue(60).await;
    world.accounts.suspend("jane", "root", "", at(0)).await.unwrap();
    world.accounts.resume("jane", at(0)).await.unwrap();
    assert!(matches!(try_with(&old, 0).await, Err(AccountError::CallerEnded)));
}

#[tokio::test]
async fn revocation_is_in_force_when_acknowledged() {
    let world = World::new().await;
    world.user("jane").await;
    let one = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    let two = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    world.accounts.revoke(&one.id).await.unwrap();
    assert!(!world.lives(&one, at(0)) && world.lives(&two, at(0)));
    for id in [one.id.as_str(), "", "nothing"] {
        assert!(matches!(world.accounts.revoke(id).await, Err(AccountError::TokenNotFound(_))));
    }
}

#[tokio::test]
async fn the_purge_takes_the_dead_and_leaves_the_living() {
    let world = World::new().await;
    world.user("jane").await;
    world.user("joe").await;
    let short = world.accounts.issue("jane", lasting(&world, Audience::Kube, 10), at(0)).await.unwrap();
    let long = world.accounts.issue("jane", lasting(&world, Audience::Kube, 7 * 24 * 3600), at(0)).await.unwrap();
    let orphan = world.accounts.issue("joe", lasting(&world, Audience::Kube, 7 * 24 * 3600), at(0)).await.unwrap();
    world.put_bytes(Kind::TokenUse, "gone", br#"{"last_used":"","address":""}"#.to_vec()).await;
    assert_eq!(world.accounts.purge_expired(at(11)).await.unwrap(), 0, "kept for a day, the clock may be wrong");
    world.delete(Kind::User, "joe").await;
    assert_eq!(world.accounts.purge_expired(at(10 + 24 * 3600)).await.unwrap(), 2);
    world.settle().await;
    let snapshot = world.index.snapshot();
    let left: Vec<&str> = snapshot.tokens.keys().map(|id| &**id).collect();
    assert_eq!(left, [long.id.as_str()], "without {} and {}", short.id, orphan.id);
    assert!(snapshot.token_uses.is_empty());
}

#[tokio::test]
async fn what_ended_by_a_clock_that_may_return_is_not_removed() {
    let hands = Hands::at(at(0));
    let world = World::by(policy(), hands.clock(None)).await;
    world.user("jane").await;
    let stored =
        async |token: &IssuedToken| world.store.get(&Key::new(Kind::Token, token.id.as_str())).await.unwrap().is_some();
    let token = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await.unwrap();
    let day = 24 * 3600;
    hands.set(at(2 * day));
    assert!(!world.lives(&token, world.index.now()));
    world.accounts.issue("jane", world.new_token(Audience::Kube), world.index.now()).await.unwrap();
    assert_eq!(world.accounts.purge_expired(world.index.clock().steady()).await.unwrap(), 0);
    assert!(stored(&token).await);
    hands.set(at(1));
    assert!(world.lives(&token, world.index.now()));

    hands.set(at(2 * day));
    world.index.clock().tick();
    hands.pass(crate::clock::STABLE);
    world.index.clock().tick();
    world.accounts.issue("jane", world.new_token(Audience::Kube), world.index.now()).await.unwrap();
    assert!(!stored(&token).await, "the time has proven itself");
}
