use jiff::{SignedDuration, ToSpan as _};

use super::by_hand::Hands;
use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn noon() -> Timestamp {
    "2030-03-01T12:00:00Z".parse().unwrap()
}

/// Lets time pass with a look every second, and returns what was found.
fn pass(hands: &Hands, clock: &Clock, seconds: u64) -> Vec<Step> {
    let mut steps = vec![];
    for _ in 0..seconds {
        hands.pass(Duration::from_secs(1));
        steps.extend(clock.tick());
    }
    steps
}

#[test]
fn a_clock_that_nobody_sets_is_followed() {
    let hands = Hands::at(noon());
    let clock = hands.clock(None);
    assert_eq!(pass(&hands, &clock, 100), []);
    assert_eq!((clock.now(), clock.steady()), (noon() + 100.seconds(), noon() + 100.seconds()));
}

#[test]
fn set_back_time_goes_on() {
    let hands = Hands::at(noon());
    let clock = hands.clock(None);
    hands.set(noon() - DAY);
    assert_eq!(clock.now(), noon(), "without anybody looking");
    assert_eq!(clock.tick(), Some(Step::Back(Duration::from_secs(24 * 3600))));
    assert_eq!(pass(&hands, &clock, 100), [], "said once");
    assert_eq!((clock.now(), clock.steady()), (noon() + 100.seconds(), noon() + 100.seconds()));
    // Set right again.
    hands.set(noon() + 100.seconds());
    assert_eq!(pass(&hands, &clock, 10), []);
    assert_eq!(clock.now(), noon() + 110.seconds());
}

#[test]
fn a_jump_forward_is_final_only_once_it_has_lasted() {
    let hands = Hands::at(noon());
    let clock = hands.clock(None);
    hands.set(noon() + DAY);
    assert_eq!((clock.now(), clock.steady()), (noon() + DAY, noon()), "refused at once, and nothing final");
    let steps = pass(&hands, &clock, STABLE.as_secs());
    assert!(matches!(steps[..], [Step::Forward(_)]), "{steps:?}");
    assert_eq!(clock.steady(), noon() + 300.seconds());
    assert_eq!(pass(&hands, &clock, 2), [Step::Believed]);
    assert_eq!(clock.steady(), noon() + DAY + 302.seconds());
    hands.set(noon());
    assert_eq!(clock.now(), noon() + DAY + 302.seconds(), "from now on it is a clock set back");
}

#[test]
fn a_jump_forward_that_is_taken_back_leaves_nothing() {
    let hands = Hands::at(noon());
    let clock = hands.clock(None);
    hands.set(noon() + DAY);
    pass(&hands, &clock, 200);
    // Another jump meanwhile: the wait begins anew.
    hands.set(noon() + DAY + DAY);
    let steps = pass(&hands, &clock, 200);
    assert!(matches!(steps[..], [Step::Forward(_)]), "{steps:?}");
    hands.set(noon() + 400.seconds());
    assert_eq!(clock.now(), noon() + 400.seconds());
    assert_eq!(pass(&hands, &clock, 400), [Step::Returned]);
    assert_eq!((clock.now(), clock.steady()), (noon() + 800.seconds(), noon() + 800.seconds()));
}

#[test]
fn small_steps_are_followed_at_once() {
    let hands = Hands::at(noon());
    let clock = hands.clock(None);
    hands.set(noon() + 2.seconds());
    assert_eq!(pass(&hands, &clock, 1), []);
    assert_eq!(clock.steady(), noon() + 3.seconds());
    hands.set(noon() + 1.second());
    assert_eq!(pass(&hands, &clock, 1), []);
    assert_eq!(clock.now(), noon() + 4.seconds());
}

#[test]
fn a_restart_does_not_go_behind_the_mark_and_believes_nothing_in_a_hurry() {
    // Set back while the service was down.
    let hands = Hands::at(noon() - DAY);
    let clock = hands.clock(Some(noon()));
    assert_eq!(clock.now(), noon());
    assert_eq!(clock.tick(), Some(Step::Back(Duration::from_secs(24 * 3600))));
    // Down for a day, or set forward by one: nobody can tell. Judged by at once, final after a while.
    let hands = Hands::at(noon() + DAY);
    let clock = hands.clock(Some(noon()));
    assert_eq!((clock.now(), clock.steady()), (noon() + DAY, noon()));
    pass(&hands, &clock, STABLE.as_secs() + 2);
    assert_eq!(clock.steady(), hands.wall());
}
