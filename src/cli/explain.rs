//! `why` and `who-can`: what the service says of rights, told to people.

use http::Method;
use serde_json::Value;

use super::args::{AskArgs, WhoCanArgs, WhyArgs};
use super::client::{Client, encode, resource_path};
use super::exit::{Failure, Outcome};
use super::output::{self, Format};
use super::session;
use crate::domain::rbac::VERBS;

/// `bailiwick why`.
pub async fn why(args: WhyArgs) -> Outcome {
    let WhyArgs { question, namespace, by, ask } = args;
    let Words { user, verb, resource, name } = words(&question)?;
    let mut query = Query::new(&ask);
    query.put("user", user);
    query.put("verb", Some(verb));
    query.put("resource", Some(resource));
    query.put("name", name);
    query.put("namespace", namespace.as_deref());
    query.put("token", by.as_deref());
    let answer = query.send(&session::connect(&ask.connect)?, "why").await?;
    let allowed = answer["allowed"] == true;
    output::structured(ask.output, &answer, || match ask.output {
        Format::Name => if allowed { "yes\n" } else { "no\n" }.to_owned(),
        _ => told(&answer),
    })?;
    // The answer has said it all: no error text beside it.
    if allowed { Ok(()) } else { Err(Failure::Refused) }
}

/// `bailiwick who-can`.
pub async fn who_can(args: WhoCanArgs) -> Outcome {
    let WhoCanArgs { verb, resource, name, namespace, ask } = args;
    let mut query = Query::new(&ask);
    query.put("verb", Some(&verb));
    query.put("resource", Some(&resource));
    query.put("name", name.as_deref());
    query.put("namespace", Some(&namespace));
    let answer = query.send(&session::connect(&ask.connect)?, "who-can").await?;
    output::structured(ask.output, &answer, || match ask.output {
        Format::Name => items(&answer["users"]).iter().map(|user| output::text(&user["name"]) + "\n").collect(),
        _ => table_of(&answer),
    })
}

struct Words<'a> {
    user: Option<&'a str>,
    verb: &'a str,
    resource: &'a str,
    name: Option<&'a str>,
}

/// `[USER] VERB RESOURCE [NAME]`. Three words begin with the verb, if the first one is a verb.
fn words(question: &[String]) -> Outcome<Words<'_>> {
    let words: Vec<&str> = question.iter().map(String::as_str).collect();
    let is_verb = |word: &str| VERBS.contains(&word);
    let (user, rest) = match words.as_slice() {
        [user, rest @ ..] if rest.len() == 3 || (rest.len() == 2 && !is_verb(user)) => (Some(*user), rest),
        all => (None, all),
    };
    match rest {
        [verb, resource, name @ ..] if is_verb(verb) => Ok(Words { user, verb, resource, name: name.first().copied() }),
        [verb, ..] => Err(Failure::Usage(format!("{verb:?} is no verb; it is one of {}", VERBS.join(", ")))),
        [] => Err(Failure::Usage("write [USER] VERB RESOURCE [NAME]".to_owned())),
    }
}

struct Query(String);

impl Query {
    fn new(ask: &AskArgs) -> Self {
        let AskArgs { cluster, project, subresource, output: _, connect: _ } = ask;
        let mut query = Self(String::new());
        query.put("cluster", cluster.as_deref());
        query.put("project", project.as_deref());
        query.put("subresource", subresource.as_deref());
        query
    }

    fn put(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            let separator = if self.0.is_empty() { '?' } else { '&' };
            self.0.push_str(&format!("{separator}{key}={}", encode(value)));
        }
    }

    /// A question that the service cannot read was put wrongly.
    async fn send(&self, client: &Client, act: &str) -> Outcome<Value> {
        let path = format!("{}/{act}{}", resource_path("explanations", None), self.0);
        client.call(Method::GET, &path, None).await.map_err(|failure| match failure {
            Failure::Server(status) if status.code == 400 => Failure::Usage(status.message),
            other => other,
        })
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// `create deployments.apps web in namespace shop-dev on cluster demo`.
fn question(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().unwrap_or_default();
    let place = match text("namespace") {
        "" => format!("on cluster {}", text("cluster")),
        namespace => format!("in namespace {namespace} on cluster {}", text("cluster")),
    };
    if let Some(path) = answer["path"].as_str() {
        return format!("read {path} {place}");
    }
    let group = if text("group").is_empty() { String::new() } else { format!(".{}", text("group")) };
    let (main, sub) = text("resource").split_once('/').unwrap_or((text("resource"), ""));
    let sub = if sub.is_empty() { String::new() } else { format!("/{sub}") };
    let name = if text("name").is_empty() { String::new() } else { format!(" {}", text("name")) };
    format!("{} {main}{group}{sub}{name} {place}", text("verb"))
}

fn told(answer: &Value) -> String {
    let user = output::text(&answer["user"]);
    let mut rows: Vec<Vec<String>> = vec![];
    let mut row = |what: &str, text: String| rows.push(vec![what.to_owned(), text]);
    let head = if answer["allowed"] == true {
        if answer["grant"].is_object() {
            row("grant", of_grant(&answer["grant"]));
            row("role", output::text(&answer["role"]));
            row("rule", output::text(&answer["ruleText"]));
        } else if answer["namespaces"].is_array() {
            for one in items(&answer["namespaces"]) {
                row(&format!("in {}", output::text(&one["namespace"])), of_grant(&one["grant"]));
            }
            for namespace in items(&answer["leftOut"]) {
                row(&format!("in {}", output::text(namespace)), "no role permits it; left out".to_owned());
            }
        } else {
            row("because", output::text(&answer["message"]));
        }
        format!("yes: {user} may {}", question(answer))
    } else {
        row("because", output::text(&answer["message"]));
        for grant in items(&answer["grantsThatFallShort"]) {
            row("falls short", format!("{}: {}", of_grant(grant), output::text(&grant["why"])));
        }
        let remedy = &answer["remedy"];
        row("what would do", output::text(&remedy["text"]));
        for by in items(&remedy["by"]) {
            row("who can", of_granter(by));
        }
        format!("no: {user} may not {}", question(answer))
    };
    format!("{}\n{}", output::disarmed(&head), indented(&rows))
}

/// Rows without headings, two blanks in.
fn indented(rows: &[Vec<String>]) -> String {
    let table = output::table(&[], rows);
    table.lines().skip(1).map(|line| format!("  {line}\n")).collect()
}

/// `shop-devs (Team devs, member on Project shop, until 2030-01-01T00:00:00Z)`.
fn of_grant(grant: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = format!("{} {}", text(&grant["target"]["kind"]), text(&grant["target"]["name"]));
    if !grant["name"].is_string() {
        return format!("one on {}", target.trim());
    }
    let mut parts = vec![format!("{} {}", text(&grant["subject"]["kind"]), text(&grant["subject"]["name"]))];
    parts.push(format!("{} on {}", text(&grant["role"]), target.trim()));
    if grant["namespaces"].is_array() {
        parts.push(format!("only {}", output::text(&grant["namespaces"])));
    }
    if let Some(end) = grant["expiresAt"].as_str() {
        parts.push(format!("until {end}"));
    }
    format!("{} ({})", text(&grant["name"]), parts.join(", "))
}

fn of_granter(by: &Value) -> String {
    let members = items(&by["members"]);
    let members = if members.is_empty() { String::new() } else { format!(": {}", output::text(&by["members"])) };
    format!("{} {}{members}, {}", output::text(&by["kind"]), output::text(&by["name"]), output::text(&by["as"]))
}

fn table_of(answer: &Value) -> String {
    let mut rows = vec![];
    for user in items(&answer["users"]) {
        let kind = if user["type"] == "Machine" { "Machine" } else { "User" };
        rows.push(vec![
            kind.to_owned(),
            output::text(&user["name"]),
            output::text(&user["role"]),
            of_grant(&user["grant"]),
        ]);
    }
    for grant in items(&answer["grants"]).iter().filter(|grant| grant["subject"]["kind"] == "Team") {
        let name = output::text(&grant["subject"]["name"]);
        rows.push(vec!["Team".to_owned(), name, output::text(&grant["role"]), of_grant(&grant["grant"])]);
    }
    if rows.is_empty() {
        let why = answer["message"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        return format!("{}\n", output::disarmed(&format!("nobody can {}{why}", question(answer))));
    }
    output::table(&["who", "name", "role", "by grant"].map(str::to_owned), &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, status};
    use serde_json::json;

    fn read(line: &str) -> Outcome<(Option<String>, String, String, Option<String>)> {
        let question: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Words { user, verb, resource, name } = words(&question)?;
        Ok((user.map(str::to_owned), verb.to_owned(), resource.to_owned(), name.map(str::to_owned)))
    }

    #[test]
    fn the_words_are_told_apart_by_the_verb() {
        let own = |text: &str| Some(text.to_owned());
        let of = |user, verb: &str, resource: &str, name| Ok((user, verb.to_owned(), resource.to_owned(), name));
        let same = |line: &str, expected: Outcome<_>| assert_eq!(read(line).unwrap(), expected.unwrap(), "{line}");
        same("get pods", of(None, "get", "pods", None));
        same("get pods web-0", of(None, "get", "pods", own("web-0")));
        same("jane get pods", of(own("jane"), "get", "pods", None));
        same("jane get pods web-0", of(own("jane"), "get", "pods", own("web-0")));
        // A user of the name of a verb is told by four words.
        same("get list pods", of(None, "get", "list", own("pods")));
        same("get list pods web-0", of(own("get"), "list", "pods", own("web-0")));
        for line in ["jane pods", "jane use pods", "use pods", "get use pods x"] {
            assert_eq!(read(line).unwrap_err().code(), 2, "{line}");
        }
    }

    #[test]
    fn answers_are_told_in_full() {
        let grant = json!({"name": "shop-devs", "role": "member", "subject": {"kind": "Team", "name": "devs"},
            "target": {"kind": "Project", "name": "shop"}, "expiresAt": "2030-01-01T00:00:00Z"});
        let yes = json!({"allowed": true, "user": "jane", "verb": "create", "resource": "deployments/scale",
            "group": "apps", "namespace": "shop-dev", "cluster": "demo", "role": "member",
            "ruleText": "update on deployments/scale in apps", "grant": grant});
        assert_eq!(
            told(&yes),
            "yes: jane may create deployments.apps/scale in namespace shop-dev on cluster demo\n  \
             grant   shop-devs (Team devs, member on Project shop, until 2030-01-01T00:00:00Z)\n  \
             role    member\n  \
             rule    update on deployments/scale in apps\n"
        );
        let mut short = grant.clone();
        short["why"] = json!("ended at 2030-01-01T00:00:00Z");
        let no = json!({"allowed": false, "user": "jane", "verb": "get", "resource": "pods", "group": "", "name": "w\u{1b}",
            "cluster": "demo", "message": "nothing", "grantsThatFallShort": [short],
            "remedy": {"text": "a grant of member", "by": [
                {"kind": "Team", "name": "leads", "members": ["amy", "bob"], "as": "owner"},
                {"kind": "User", "name": "root", "as": "platform administrator"}]}});
        assert_eq!(
            told(&no),
            "no: jane may not get pods w? on cluster demo\n  \
             because         nothing\n  \
             falls short     shop-devs (Team devs, member on Project shop, until 2030-01-01T00:00:00Z): ended at 2030-01-01T00:00:00Z\n  \
             what would do   a grant of member\n  \
             who can         Team leads: amy,bob, owner\n  \
             who can         User root, platform administrator\n"
        );
    }

    #[test]
    fn who_can_lists_accounts_and_teams() {
        let grant = json!({"name": "g", "role": "member", "subject": {"kind": "Team", "name": "devs"},
            "target": {"kind": "Project", "name": "shop"}});
        let answer = json!({"verb": "get", "resource": "pods", "group": "", "namespace": "shop-dev", "cluster": "demo",
            "users": [{"name": "jane", "type": "Human", "role": "member", "grant": grant},
                      {"name": "ops", "type": "Machine", "role": "owner", "grant": {"target": {"kind": "Cluster", "name": "demo"}}}],
            "grants": [{"subject": {"kind": "Team", "name": "devs"}, "role": "member", "grant": grant},
                       {"subject": {"kind": "User", "name": "x"}, "role": "member", "grant": grant}]});
        assert_eq!(
            table_of(&answer),
            "WHO       NAME   ROLE     BY GRANT\n\
             User      jane   member   g (Team devs, member on Project shop)\n\
             Machine   ops    owner    one on Cluster demo\n\
             Team      devs   member   g (Team devs, member on Project shop)\n"
        );
        let nobody = json!({"verb": "get", "resource": "pods", "group": "", "namespace": "x", "cluster": "demo",
            "users": [], "grants": [], "message": "no project has it"});
        assert_eq!(table_of(&nobody), "nobody can get pods in namespace x on cluster demo: no project has it\n");
    }

    #[tokio::test]
    async fn a_question_that_cannot_be_read_is_wrong_usage() {
        let fake = Fake::start(|(_, path, _)| match path.contains("resource=pods") {
            true => (200, json!({"allowed": true})),
            false => status(400, "BadRequest", "resource: unknown"),
        })
        .await;
        let mut query = Query(String::new());
        query.put("verb", Some("get"));
        query.put("resource", Some("pods/exec&user=x"));
        assert_eq!(query.send(&fake.client, "why").await.unwrap()["allowed"], true);
        assert_eq!(
            fake.asked(),
            ["GET /apis/bailiwick.dev/v1alpha1/explanations/why?verb=get&resource=pods%2Fexec%26user%3Dx"]
        );
        let failure = Query("?resource=x".to_owned()).send(&fake.client, "why").await.unwrap_err();
        assert_eq!((failure.code(), failure.to_string()), (2, "error: resource: unknown".to_owned()));
    }
}
