//! Real tasks against each other. What is acknowledged holds, whoever else was writing.

use std::sync::Arc;

use futures::future::join_all;

use crate::identity::accounts::issue::Ground;
use crate::identity::accounts::{AccountError, LoginError};
use crate::identity::testing::{BETTER, GOOD, HERE, World, at};
use crate::resources::token::Audience;
use crate::store::Kind;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_issues_stop_exactly_at_the_limit() {
    let world = Arc::new(World::new().await);
    world.user("jane").await;
    let tasks = (0..60).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await })
    });
    let results: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 50);
    assert!(results.iter().filter_map(|r| r.as_ref().err()).all(|e| matches!(e, AccountError::TooManyTokens { .. })));
    assert_eq!(world.index.snapshot().tokens_of("jane").count(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_go_away_do_not_break_the_limit() {
    let world = Arc::new(World::new().await);
    world.user("jane").await;
    for _ in 0..10 {
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        tasks.iter().for_each(|task| task.abort());
        join_all(tasks).await;
    }
    // Whatever they left running is done before another one gets its turn.
    let last = world.accounts.issue("jane", world.new_token(Audience::Kube), at(0)).await;
    let count = world.index.snapshot().tokens_of("jane").count();
    assert!(count <= 50, "{count}");
    assert!(last.is_ok() || count == 50, "{last:?} at {count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_suspension_nothing_lives_whatever_was_being_issued() {
    let world = Arc::new(World::new().await);
    world.person("jane").await;
    for round in 0..12 {
        let issuing: Vec<_> = (0..8)
            .map(|n| {
                let world = world.clone();
                tokio::spawn(async move {
                    if n % 4 == 0 {
                        world.accounts.login("jane", GOOD, None, HERE, at(round)).await.ok()
                    } else {
                        world.accounts.issue("jane", world.new_token(Audience::Kube), at(round)).await.ok()
                    }
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        world.accounts.suspend("jane", "root", "", at(round)).await.unwrap();
        let dead = |world: &World| {
            let snapshot = world.index.snapshot();
            snapshot.tokens_of("jane").all(|token| snapshot.live_owner(token, at(round)).is_none())
        };
        assert!(dead(&world), "round {round}: acknowledged, and a token lives");
        let issued: Vec<_> = join_all(issuing).await.into_iter().filter_map(Result::unwrap).collect();
        assert!(dead(&world), "round {round}: a late token lives");
        world.accounts.resume("jane", at(round)).await.unwrap();
        assert!(issued.iter().all(|token| !world.lives(token, at(round))), "round {round}: resuming revived one");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_password_ends_sign_ins_with_the_old_one() {
    let world = Arc::new(World::new().await);
    world.person("jane").await;
    for round in 0..10 {
        let (old, new) = if round % 2 == 0 { (GOOD, BETTER) } else { (BETTER, GOOD) };
        let signing_in: Vec<_> = (0..4)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.accounts.login("jane", old, None, HERE, at(round * 100)).await.ok() })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        world.accounts.set_password("jane", new, false).await.unwrap();
        let tokens = join_all(signing_in).await.into_iter().filter_map(Result::unwrap);
        for token in tokens {
            assert!(!world.lives(&token, at(round * 100)), "round {round}");
        }
    }
}

/// What may come between the steps of a sign-in, each in turn.
async fn meanwhile(world: &World, what: usize) {
    match what {
        0 => world.accounts.set_password("jane", BETTER, false).await.unwrap(),
        1 => {
            world.accounts.suspend("jane", "root", "", at(0)).await.unwrap();
            world.accounts.resume("jane", at(0)).await.unwrap();
        }
        2 => world.accounts.raise_epoch("jane").await.unwrap(),
        3 => {
            world.delete(Kind::User, "jane").await;
            world.person("jane").await;
        }
        _ => world.accounts.suspend("jane", "root", "", at(0)).await.unwrap(),
    }
}

#[tokio::test]
async fn a_proof_does_not_outlive_what_it_was_given_for() {
    for what in 0..5 {
        let world = World::new().await;
        world.person("jane").await;
        let inner = &world.accounts.inner;
        let proof = inner.prove("jane", GOOD, HERE, at(0)).await.unwrap();
        assert!(inner.record_login(&proof, GOOD, None, at(0)).await.is_ok());
        meanwhile(&world, what).await;
        let result = inner.record_login(&proof, GOOD, None, at(0)).await;
        assert!(matches!(result, Err(LoginError::Refused)), "{what}: {result:?}");
        let result = inner.record_login(&proof, GOOD, Some("unbolts 29 a walrus"), at(0)).await;
        assert!(matches!(result, Err(LoginError::Refused)), "{what}: {result:?}");
    }
}

#[tokio::test]
async fn a_recorded_sign_in_gives_no_token_of_a_later_epoch() {
    for what in 0..5 {
        let world = World::new().await;
        world.person("jane").await;
        let inner = &world.accounts.inner;
        let proof = inner.prove("jane", GOOD, HERE, at(0)).await.unwrap();
        let epoch = inner.record_login(&proof, GOOD, None, at(0)).await.unwrap();
        let issue = || {
            let ground = Ground::SignIn { uid: proof.uid.clone(), epoch };
            inner.clone().issue("jane", world.new_token(Audience::Api), ground, at(0))
        };
        let token = issue().await.unwrap();
        meanwhile(&world, what).await;
        assert!(matches!(issue().await, Err(AccountError::MayNotAct)), "{what}");
        assert!(!world.lives(&token, at(0)), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_writers_of_one_record_lose_nothing() {
    let world = Arc::new(World::new().await);
    world.user("jane").await;
    // A second process would not share our locks; another instance does not either.
    let other = world.accounts_with(crate::identity::testing::policy());
    let tasks = (0..20).map(|n| {
        let accounts = if n % 2 == 0 { world.accounts.clone() } else { other.clone() };
        tokio::spawn(async move { accounts.raise_epoch("jane").await })
    });
    let done = join_all(tasks).await.into_iter().filter(|result| matches!(result, Ok(Ok(())))).count() as u64;
    let record = world.account("jane").await.unwrap();
    assert_eq!((record.content.epoch, record.version), (20, 20), "{done} acknowledged");
}
