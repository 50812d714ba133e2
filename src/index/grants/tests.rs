//! What is found by target is what is held, seen from the other side.

use serde_json::{Value, json};

use super::*;
use crate::index::testing::{resource, snapshot};
use crate::store::sealed::Sealer;
use crate::store::{Entry, Event, Key, Kind};

fn grant(
    name: &'static str,
    subject: (&str, &str),
    target: (&str, &str),
    uids: (&str, &str),
    ends: Option<&str>,
) -> (Kind, &'static str, Value) {
    let mut spec = json!({"subject": {"kind": subject.0, "name": subject.1}, "role": "member",
        "target": {"kind": target.0, "name": target.1}});
    if let Some(ends) = ends {
        spec["expiresAt"] = json!(ends);
    }
    resource(Kind::Grant, name, spec, json!({"state": "Active", "subjectUID": uids.0, "targetUID": uids.1}))
}

const PAST: &str = "2030-01-01T00:00:00Z";

fn now() -> Timestamp {
    "2030-03-01T12:00:00Z".parse().unwrap()
}

/// Jane is in web; john is listed there as another john was meant; the others give nothing or something elsewhere.
fn world() -> Vec<(Kind, &'static str, Value)> {
    let team = json!({"memberUIDs": {"jane": "uid-jane", "john": "uid-of-before"}});
    let project = |cluster: &str| json!({"clusters": [{"cluster": cluster}]});
    vec![
        resource(Kind::User, "jane", json!({}), json!({})),
        resource(Kind::User, "john", json!({}), json!({})),
        resource(Kind::Team, "web", json!({"users": ["jane", "john"]}), team),
        resource(Kind::Cluster, "east", json!({"connection": {}}), json!({})),
        resource(Kind::Project, "shop", project("east"), json!({})),
        resource(Kind::Project, "bank", project("west"), json!({})),
        grant("own", ("User", "jane"), ("Project", "shop"), ("uid-jane", "uid-shop"), None),
        grant("own-2", ("User", "jane"), ("Project", "shop"), ("uid-jane", "uid-shop"), None),
        grant("team", ("Team", "web"), ("Project", "shop"), ("uid-web", "uid-shop"), None),
        grant("team-bank", ("Team", "web"), ("Project", "bank"), ("uid-web", "uid-bank"), None),
        grant("east", ("Team", "web"), ("Cluster", "east"), ("uid-web", "uid-east"), None),
        grant("johns", ("User", "john"), ("Project", "shop"), ("uid-john", "uid-shop"), None),
        grant("stranger", ("User", "jane"), ("Project", "shop"), ("uid-of-before", "uid-shop"), None),
        grant("strange-team", ("Team", "web"), ("Project", "shop"), ("uid-of-before", "uid-shop"), None),
        grant("strange-target", ("User", "jane"), ("Project", "shop"), ("uid-jane", "uid-of-before"), None),
        grant("ended", ("User", "jane"), ("Project", "shop"), ("uid-jane", "uid-shop"), Some(PAST)),
        // A team of the user's name is another subject.
        grant("namesake", ("Team", "jane"), ("Project", "shop"), ("uid-jane", "uid-shop"), None),
        // Given before its target exists.
        grant("waits", ("User", "jane"), ("Project", "later"), ("uid-jane", "uid-later"), None),
        grant("platform", ("User", "jane"), ("Platform", ""), ("uid-jane", ""), None),
    ]
}

fn names<'a>(grants: impl IntoIterator<Item = &'a Arc<GrantEntry>>) -> Vec<&'a str> {
    let mut names: Vec<&str> = grants.into_iter().map(|grant| &*grant.name).collect();
    names.sort_unstable();
    names
}

fn on<'a, T>(snapshot: &'a Snapshot, user: &str, target: Option<Granted<'a, T>>) -> Vec<&'a str> {
    let mut found = vec![];
    if let Some(target) = target {
        let holder = snapshot.holder(&snapshot.users[user].object, now());
        holder.on(target, |grant| {
            found.push(grant);
            ControlFlow::Continue(())
        });
        assert_eq!(holder.has_any_on(target), !found.is_empty());
    }
    names(found)
}

/// Whatever is found by target is what [`Snapshot::in_force`] says of each grant, one by one.
fn agrees(snapshot: &Snapshot) {
    for user in snapshot.users.values() {
        let name = user.object.metadata.name.as_deref().unwrap();
        let holds = |grant: &&Arc<GrantEntry>| {
            let subject = &grant.object.spec.subject;
            let own = match subject.kind {
                SubjectKind::User => subject.name == name,
                SubjectKind::Team => snapshot.teams_of(&user.object).any(|team| **team == *subject.name),
            };
            own && snapshot.in_force(grant, now())
        };
        let held: Vec<&Arc<GrantEntry>> = snapshot.grants.values().filter(holds).collect();
        assert_eq!(names(snapshot.holdings(&user.object, now())), names(held.iter().copied()), "{name}");
        assert!(held.len() <= snapshot.holder(&user.object, now()).most());
        for target in ["shop", "bank", "later", "east", "west"] {
            let of = |kind| {
                let on = move |grant: &&&Arc<GrantEntry>| {
                    grant.object.spec.target.kind == kind && grant.object.spec.target.name == target
                };
                names(held.iter().filter(on).copied())
            };
            assert_eq!(
                on(snapshot, name, snapshot.granted_project(target)),
                of(TargetKind::Project),
                "{name} {target}"
            );
            assert_eq!(
                on(snapshot, name, snapshot.granted_cluster(target)),
                of(TargetKind::Cluster),
                "{name} {target}"
            );
        }
    }
}

#[test]
fn grants_are_found_by_what_they_are_on() {
    let snapshot = snapshot(&world());
    agrees(&snapshot);
    assert_eq!(on(&snapshot, "jane", snapshot.granted_project("shop")), ["own", "own-2", "team"]);
    assert_eq!(on(&snapshot, "jane", snapshot.granted_project("bank")), ["team-bank"]);
    assert_eq!(on(&snapshot, "jane", snapshot.granted_cluster("east")), ["east"]);
    assert_eq!(on(&snapshot, "john", snapshot.granted_project("shop")), ["johns"]);
    assert_eq!(on(&snapshot, "john", snapshot.granted_cluster("east")), [""; 0]);
    assert!(snapshot.granted_project("later").is_none(), "only grants wait there");
    assert!(snapshot.granted_project("east").is_none() && snapshot.granted_cluster("shop").is_none());
}

/// In any order of coming and going the layout follows, and leaves nothing behind.
#[test]
fn the_layout_follows_every_order_of_changes() {
    let sealer = Sealer::new("k1", &[7; 32]);
    let world = world();
    for turn in 0..world.len() {
        let mut order = world.clone();
        order.rotate_left(turn);
        let mut followed = snapshot(&order);
        agrees(&followed);
        // Again the same, then all of it away.
        let events = order.iter().map(|(kind, name, value)| {
            let entry = Entry { key: Key::new(*kind, *name), revision: Revision(100), value: value.to_string().into() };
            Event::Put { entry, created: false }
        });
        let gone = order.iter().map(|(kind, name, value)| Event::Delete {
            key: Key::new(*kind, *name),
            revision: Revision(101),
            previous: value.to_string().into(),
        });
        for event in events.chain(gone) {
            followed.apply(&event, &sealer).unwrap();
            agrees(&followed);
        }
        assert!(followed.granted_projects.is_empty() && followed.granted_clusters.is_empty());
        assert!(followed.projects_of_cluster.is_empty() && followed.teams_of_user.is_empty());
        assert!(followed.grants_of_user.is_empty() && followed.grants_of_team.is_empty());
    }
}

#[test]
fn a_target_that_comes_back_is_a_stranger() {
    let sealer = Sealer::new("k1", &[7; 32]);
    let mut snapshot = snapshot(&world());
    let (kind, name, mut shop) = resource(Kind::Project, "shop", json!({"clusters": []}), json!({}));
    shop["metadata"]["uid"] = json!("uid-new");
    let entry = Entry { key: Key::new(kind, name), revision: Revision(100), value: shop.to_string().into() };
    snapshot.apply(&Event::Put { entry, created: true }, &sealer).unwrap();
    assert_eq!(on(&snapshot, "jane", snapshot.granted_project("shop")), [""; 0]);
    assert_eq!(on(&snapshot, "jane", snapshot.granted_project("bank")), ["team-bank"]);
    agrees(&snapshot);
}
