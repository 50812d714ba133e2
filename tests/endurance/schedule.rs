//! What happens while caches are kept, at random and the same for the same seed: the tenant's namespaces come and go,
//! and each part on the way is away for a while.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use super::place::{Numbers, Place};
use super::process::*;
use super::relay::Relay;
use super::site::*;
use super::writer::Writer;

/// Acts of a schedule.
const ACTS: usize = 16;
/// Between two acts, in milliseconds, at most.
const PAUSE: usize = 500;
/// The client is away for so many milliseconds at most.
const AWAY: usize = 3_000;
/// Most namespaces of one project at a time.
const MOST: usize = 5;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A namespace is made in the tenant's project.
    Create,
    /// A namespace of the tenant's project is deleted.
    Delete,
    /// A namespace goes to the other project.
    MoveOut,
    /// A namespace of the other project comes.
    MoveIn,
    /// The tenant gets a grant on the other project, or loses it.
    Grant,
    /// All connections of the service to the API server end.
    CutMembers,
    /// All connections of the client to the service end.
    Blink,
    /// The client cannot reach the service for a while.
    Disconnect,
    /// The API server is stopped and started.
    RestartApiServer,
    /// The service is killed and started.
    RestartService,
}

/// Those that are chosen from at random: each as often as it stands here.
const LIGHT: [Act; 12] = [
    Act::Create,
    Act::Create,
    Act::Delete,
    Act::MoveOut,
    Act::MoveOut,
    Act::MoveIn,
    Act::MoveIn,
    Act::Grant,
    Act::Grant,
    Act::CutMembers,
    Act::CutMembers,
    Act::Disconnect,
];

/// The acts of a seed: every second one has a restart of each part, others none, so that what is forgotten at a restart
/// hides nothing.
pub fn acts(seed: u64, numbers: &mut Numbers) -> Vec<Act> {
    let mut acts: Vec<Act> = (0..ACTS).filter_map(|_| numbers.one_of(&LIGHT).copied()).collect();
    let restarts = [Act::RestartApiServer, Act::RestartService];
    let some = restarts.into_iter().filter(|_| seed % 2 == 1);
    for act in some.chain([Act::Blink; 3]) {
        acts.insert(numbers.below(acts.len() + 1), act);
    }
    acts
}

/// What a schedule happens to.
pub struct World<'a> {
    place: &'a Place,
    /// The tenant's project and the other one.
    projects: [String; 2],
    tenant: Person,
    /// Namespaces of both.
    namespaces: [BTreeSet<String>; 2],
    granted: bool,
    made: usize,
    writer: Writer,
    /// Between the client and the service.
    pub way: Relay,
    /// What happened, for people.
    pub story: String,
}

impl<'a> World<'a> {
    /// Makes two projects with namespaces, a tenant of one of them, and lets objects change in all of them.
    pub fn new(place: &'a Place, seed: u64) -> Self {
        let projects = [format!("s{seed}a"), format!("s{seed}b")];
        let manifests: Vec<String> = projects.iter().map(|name| project(name).to_string()).collect();
        place.site.apply(&manifests.join("\n---\n"));
        let name = format!("s{seed}-tenant");
        let tenant = place.site.machine(&name, &[("member", &projects[0])]);
        let writer = Writer::start(place, seed);
        let mut world = Self {
            place,
            projects,
            tenant,
            namespaces: Default::default(),
            granted: false,
            made: 0,
            writer,
            way: place.before_service(),
            story: String::new(),
        };
        for of in [0, 0, 0, 1, 1] {
            world.create(of);
        }
        world
    }

    /// The tenant's kubeconfig.
    pub fn tenant(&self) -> &Person {
        &self.tenant
    }

    /// The namespaces that the tenant may see now.
    pub fn seen(&self) -> BTreeSet<String> {
        let [own, others] = &self.namespaces;
        let others = others.iter().filter(|_| self.granted);
        own.iter().chain(others).cloned().collect()
    }

    /// Lets it happen. `away` is how long the client is away instead of a random time.
    pub fn act(&mut self, act: Act, numbers: &mut Numbers, away: Option<Duration>) {
        let site = &self.place.site;
        match act {
            Act::Create if self.namespaces[0].len() < MOST => self.create(0),
            Act::Delete if self.namespaces[0].len() > 1 => self.delete(numbers),
            Act::MoveOut if self.namespaces[0].len() > 1 => self.go(numbers, 0, 1),
            Act::MoveIn if self.namespaces[0].len() < MOST => self.go(numbers, 1, 0),
            // Nothing to be done this way just now.
            Act::Create | Act::Delete | Act::MoveOut | Act::MoveIn => {}
            Act::Grant => self.grant(),
            Act::CutMembers => {
                self.tell("the service's connections are cut");
                self.place.to_cluster.cut();
                self.place.to_cluster.mend();
            }
            Act::Disconnect => {
                let away = away.unwrap_or(Duration::from_millis(numbers.below(AWAY) as u64));
                self.tell(&format!("the client is away for {away:?}"));
                self.way.cut();
                // Namespaces come and go meanwhile, too.
                if numbers.below(2) == 0 {
                    self.grant();
                }
                pause(away);
                self.way.mend();
            }
            Act::Blink => {
                self.tell("the client's connections are cut");
                self.way.cut();
                self.way.mend();
            }
            Act::RestartApiServer => {
                self.tell("the API server is away");
                let mut kubernetes = site.kubernetes();
                kubernetes.stop_api_server();
                kubernetes.start_api_server();
            }
            Act::RestartService => {
                self.tell("the service is killed");
                site.kill_service();
                // Whatever the client saw last, it is not what is true when the service is back.
                site.start_service();
            }
        }
        pause(Duration::from_millis(numbers.below(PAUSE) as u64));
    }

    /// Nothing changes any more, and all ways are open. Returns changes and the time in which they were made.
    pub fn calm(self) -> (Calm, (u64, Duration)) {
        let (seen, place) = (self.seen(), self.place);
        let gone = move || {
            let found = place.site.cluster_admin(&["get", "namespaces", "-o", "jsonpath={.items[*].status.phase}"]);
            if found.code == Some(0) && !found.text().contains("Terminating") { Ok(()) } else { Err(found.text()) }
        };
        let changes = self.writer.finish(place);
        until("deleted namespaces are gone", gone);
        (Calm { seen, story: self.story, _way: self.way }, changes)
    }

    fn tell(&mut self, what: &str) {
        let _ = writeln!(self.story, "  {what}");
    }

    fn create(&mut self, of: usize) {
        self.made += 1;
        let (project, name) = (self.projects[of].clone(), format!("{}-{}", self.projects[of], self.made));
        self.tell(&format!("{name} is made"));
        self.eventually(&["project", "namespace", "create", &project, &name, "--cluster", CLUSTER], "already");
        self.writer.add(&name);
        self.namespaces[of].insert(name);
    }

    fn delete(&mut self, numbers: &mut Numbers) {
        let Some(name) = self.any(numbers, 0) else { return };
        self.tell(&format!("{name} is deleted"));
        self.writer.leave(&name);
        let project = self.projects[0].clone();
        self.eventually(&["project", "namespace", "delete", &project, &name, "--cluster", CLUSTER], "not found");
        self.namespaces[0].remove(&name);
    }

    fn go(&mut self, numbers: &mut Numbers, from: usize, to: usize) {
        let Some(name) = self.any(numbers, from) else { return };
        let [from_name, to_name] = [from, to].map(|at| self.projects[at].clone());
        self.tell(&format!("{name} goes from {from_name} to {to_name}"));
        let args =
            ["project", "namespace", "move", &name, "--cluster", CLUSTER, "--from", &from_name, "--to", &to_name];
        self.eventually(&args, "already");
        self.namespaces[from].remove(&name);
        self.namespaces[to].insert(name);
    }

    fn grant(&mut self) {
        let (tenant, project) = (self.tenant.name.clone(), self.projects[1].clone());
        self.granted = !self.granted;
        match self.granted {
            true => {
                self.tell(&format!("a grant on {project} is given"));
                self.place.site.apply(&grant(&tenant, "viewer", &project).to_string());
            }
            false => {
                self.tell(&format!("the grant on {project} is taken away"));
                self.eventually(&["delete", "grant", &format!("{tenant}-viewer-{project}")], "not found");
            }
        }
    }

    fn any(&self, numbers: &mut Numbers, of: usize) -> Option<String> {
        let names: Vec<String> = self.namespaces[of].iter().cloned().collect();
        numbers.one_of(&names).cloned()
    }

    /// A command of the administrator's, again for as long as a part that it needs is coming back. `done` is what it says
    /// where it has been done before.
    fn eventually(&self, args: &[&str], done: &str) {
        until(&format!("bailiwick {args:?} succeeds"), || {
            let ran = self.place.site.admin(args);
            if ran.code == Some(0) || ran.text().contains(done) { Ok(()) } else { Err(ran.text()) }
        });
    }
}

/// The end of a schedule.
pub struct Calm {
    /// The namespaces that the tenant may see.
    pub seen: BTreeSet<String>,
    /// What happened, for people.
    pub story: String,
    // For as long as the clients go on.
    _way: Relay,
}

fn project(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "bailiwick.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {"clusters": [{"cluster": CLUSTER, "prefix": format!("{name}-"), "maxNamespaces": 20}]},
    })
}
