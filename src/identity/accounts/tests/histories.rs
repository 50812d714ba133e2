//! Random histories against a model that is simple enough to be believed.

use proptest::prelude::*;

use crate::identity::accounts::{AccountError, LoginError};
use crate::identity::testing::{BETTER, GOOD, HERE, World, at};
use crate::identity::tokens::IssuedToken;
use crate::resources::User;
use crate::resources::token::Audience;
use crate::store::Kind;

#[derive(Debug, Clone)]
enum Step {
    Suspend,
    Resume,
    RaiseEpoch,
    SetDisabled(bool),
    SetPassword(bool),
    Login(bool),
    Issue { api: bool, seconds: u64 },
    Revoke(prop::sample::Index),
    Recreate,
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Suspend),
        3 => Just(Step::Resume),
        1 => Just(Step::RaiseEpoch),
        2 => any::<bool>().prop_map(Step::SetDisabled),
        1 => any::<bool>().prop_map(Step::SetPassword),
        2 => any::<bool>().prop_map(Step::Login),
        6 => (any::<bool>(), 1..100u64).prop_map(|(api, seconds)| Step::Issue { api, seconds }),
        2 => any::<prop::sample::Index>().prop_map(Step::Revoke),
        1 => Just(Step::Recreate),
        2 => (1..60i64).prop_map(Step::Pass),
    ]
}

/// What ought to be so. A token lives until its end, or until something kills all that are there.
struct Model {
    now: i64,
    suspended: bool,
    disabled: bool,
    password: Option<&'static str>,
    tokens: Vec<(IssuedToken, bool, i64)>,
}

impl Model {
    fn may_act(&self) -> bool {
        !self.suspended && !self.disabled
    }

    fn kill_all(&mut self) {
        self.tokens.iter_mut().for_each(|(_, alive, _)| *alive = false);
    }
}

async fn take(world: &World, user: &mut User, model: &mut Model, step: Step) {
    let accounts = &world.accounts;
    let now = at(model.now);
    match step {
        Step::Suspend => {
            accounts.suspend("jane", "root", "", now).await.unwrap();
            model.suspended = true;
            model.kill_all();
        }
        Step::Resume => {
            accounts.resume("jane", now).await.unwrap();
            model.suspended = false;
        }
        Step::RaiseEpoch => {
            accounts.raise_epoch("jane").await.unwrap();
            model.kill_all();
        }
        // As the API does it: write the user, then kill what was issued.
        Step::SetDisabled(disabled) => {
            user.spec.disabled = disabled;
            world.put(Kind::User, "jane", user).await;
            model.disabled = disabled;
            if disabled {
                accounts.raise_epoch("jane").await.unwrap();
                model.kill_all();
            }
        }
        Step::SetPassword(good) => {
            let password = if good { GOOD } else { BETTER };
            accounts.set_password("jane", password, false).await.unwrap();
            model.password = Some(password);
            model.kill_all();
        }
        Step::Login(good) => {
            let password = if good { GOOD } else { BETTER };
            // The clock of the back-off runs on, so that no wait is left.
            model.now += 3600;
            let expected = model.may_act() && model.password == Some(password);
            match accounts.login("jane", password, None, HERE, at(model.now)).await {
                Ok(token) => {
                    assert!(expected, "signed in");
                    model.tokens.push((token, true, model.now + 12 * 3600));
                }
                Err(error) => assert!(!expected && matches!(error, LoginError::Refused), "{error:?}"),
            }
        }
        Step::Issue { api, seconds } => {
            let mut new = world.new_token(if api { Audience::Api } else { Audience::Kube });
            new.expires_in = std::time::Duration::from_secs(seconds);
            match accounts.issue("jane", new, now).await {
                Ok(token) => {
                    assert!(model.may_act(), "issued");
                    model.tokens.push((token, true, model.now + seconds as i64));
                }
                Err(error) => assert!(!model.may_act() && matches!(error, AccountError::MayNotAct), "{error:?}"),
            }
        }
        Step::Revoke(which) => {
            if model.tokens.is_empty() {
                return;
            }
            let which = which.index(model.tokens.len());
            let (token, alive, end) = &mut model.tokens[which];
            let result = accounts.revoke(&token.id).await;
            // A dead one may have been removed already.
            assert!(result.is_ok() || !*alive || model.now >= *end, "{result:?}");
            *alive = false;
        }
        Step::Recreate => {
            world.delete(Kind::User, "jane").await;
            *user = world.user("jane").await;
            (model.suspended, model.disabled, model.password) = (false, false, None);
            model.kill_all();
        }
        Step::Pass(seconds) => model.now += seconds,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn authentication_agrees_with_the_model(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let mut user = world.user("jane").await;
            let mut model = Model { now: 0, suspended: false, disabled: false, password: None, tokens: vec![] };
            for (n, step) in steps.into_iter().enumerate() {
                let told = format!("{n}: {step:?}");
                take(&world, &mut user, &mut model, step).await;
                for (token, alive, end) in &model.tokens {
                    let expected = *alive && model.may_act() && model.now < *end;
                    assert_eq!(world.lives(token, at(model.now)), expected, "token {} after step {told}", token.id);
                    let other = match token.record.audience { Audience::Api => Audience::Kube, Audience::Kube => Audience::Api };
                    assert!(world.authenticate(&token.secret_token, other, at(model.now)).is_err());
                }
            }
        });
    }
}
