//! `explanations/why` and `explanations/who-can`: what is said, and to whom.

use std::sync::Arc;

use serde_json::{Value, json};

use super::harness::{Client, Server};
use crate::index::{Observation, ObservedCluster};
use crate::records::{Scoped, TokenScopes};
use crate::resources::token::Audience;
use crate::store::Kind;

/// Two projects on one cluster. `amy` owns `shop`, team `devs` (dan, dora) has member, `vera` views `shop-dev` only,
/// `olga` is an operator by a grant on the cluster, `otto` owns `vault`, `nell` holds nothing.
async fn platform() -> Server {
    let server = Server::start().await;
    for user in ["amy", "dan", "dora", "vera", "olga", "otto", "nell", "audrey"] {
        server.user(user).await;
    }
    server.cluster("demo").await;
    for (project, prefix) in [("shop", "shop-"), ("vault", "vault-")] {
        let spec = json!({"roles": [], "clusters": [{"cluster": "demo", "prefix": prefix}]});
        server.seed(Kind::Project, project, spec, json!({})).await;
    }
    let uids = json!({"dan": Server::uid("dan"), "dora": Server::uid("dora")});
    server.seed(Kind::Team, "devs", json!({"users": ["dan", "dora"]}), json!({"memberUIDs": uids})).await;
    server.grant("audrey", "User", "audrey", "auditor", "Platform", "").await;
    server.grant("amy", "User", "amy", "owner", "Project", "shop").await;
    server.grant("devs", "Team", "devs", "member", "Project", "shop").await;
    server.grant("vera", "User", "vera", "viewer", "Project", "shop").await;
    server.change(Kind::Grant, "vera-grant", |grant| grant["spec"]["namespaces"] = json!(["shop-dev"])).await;
    server.grant("olga", "User", "olga", "member", "Cluster", "demo").await;
    server.grant("otto", "User", "otto", "owner", "Project", "vault").await;
    let mut seen = ObservedCluster { cluster_uid: Server::uid("demo"), usable: true, ..ObservedCluster::default() };
    for (project, namespace) in [("shop", "shop-dev"), ("shop", "shop-prod"), ("vault", "vault-keys")] {
        seen.namespaces.insert(namespace.into(), Server::uid(namespace).into());
        let claim = json!({"cluster": "demo", "cluster_uid": Server::uid("demo"), "namespace": namespace,
            "namespace_uid": Server::uid(namespace), "project": project, "project_uid": Server::uid(project),
            "origin": "created", "releasing": false, "created_by": "amy", "created_at": "2030-01-01T00:00:00Z"});
        server.put(Kind::Claim, &format!("demo/{namespace}"), claim).await;
    }
    let seen = Some(Arc::new(seen));
    server.index.observe_applied(Observation { cluster: "demo".into(), seen }).await.unwrap();
    server
}

async fn why(client: &Client, query: &str) -> Value {
    client.get(&format!("explanations/why?{query}")).await.ok()
}

async fn refused(client: &Client, act: &str, query: &str, code: u16) -> String {
    client.get(&format!("explanations/{act}?{query}")).await.refused(code)
}

#[tokio::test]
async fn a_permit_names_grant_role_and_rule() {
    let server = platform().await;
    let dan = server.client("dan").await;
    let told = why(&dan, "verb=create&resource=deploy&namespace=shop-dev").await;
    assert_eq!((&told["allowed"], &told["right"], &told["role"]), (&json!(true), &json!("Rule"), &json!("member")));
    assert_eq!((&told["resource"], &told["group"]), (&json!("deployments"), &json!("apps")));
    assert_eq!((&told["user"], &told["project"], &told["cluster"]), (&json!("dan"), &json!("shop"), &json!("demo")));
    let grant = &told["grant"];
    assert_eq!((&grant["name"], &grant["subject"]["name"]), (&json!("devs-grant"), &json!("devs")));
    assert!(told["rule"]["resources"].as_array().unwrap().contains(&json!("deployments")), "{told}");
    assert!(told["ruleText"].as_str().unwrap().contains("deployments"), "{told}");
    for (query, right) in [
        ("verb=get&resource=/version", "Discovery"),
        ("verb=list&resource=sc", "TenantRead"),
        ("verb=create&resource=selfsubjectaccessreviews", "SelfReview"),
        ("verb=get&resource=ns&name=shop-dev", "Rule"),
        ("verb=create&resource=pods/exec&namespace=shop-dev&cluster=demo&project=shop&user=me", "Rule"),
        ("verb=create&resource=pods&subresource=exec&namespace=shop-dev", "Rule"),
    ] {
        let told = why(&dan, query).await;
        assert_eq!((&told["allowed"], &told["right"]), (&json!(true), &json!(right)), "{query}: {told}");
    }
}

#[tokio::test]
async fn a_list_that_names_no_namespace_is_explained_by_each() {
    let server = platform().await;
    let told = why(&server.client("vera").await, "verb=list&resource=pods").await;
    assert_eq!((&told["allowed"], &told["right"], &told["leftOut"]), (&json!(true), &json!("Across"), &json!([])));
    let namespaces = told["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 1);
    assert_eq!(
        (&namespaces[0]["namespace"], &namespaces[0]["grant"]["name"]),
        (&json!("shop-dev"), &json!("vera-grant"))
    );
    let told = why(&server.client("root").await, "user=dan&verb=list&resource=secrets").await;
    let namespaces: Vec<_> = told["namespaces"].as_array().unwrap().iter().map(|one| &one["namespace"]).collect();
    assert_eq!(namespaces, ["shop-dev", "shop-prod"]);
    let told = why(&server.client("vera").await, "verb=list&resource=secrets").await;
    assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("no-rule")));
}

#[tokio::test]
async fn making_and_deleting_namespaces_is_explained() {
    let server = platform().await;
    let (amy, dan) = (server.client("amy").await, server.client("dan").await);
    // Whatever namespace the context names.
    for query in ["verb=create&resource=ns&name=shop-new", "verb=create&resource=ns&namespace=shop-dev"] {
        let told = why(&dan, query).await;
        assert_eq!((&told["right"], &told["grant"]["name"]), (&json!("Namespaces"), &json!("devs-grant")), "{told}");
    }
    for query in ["verb=delete&resource=ns&name=shop-dev", "verb=delete&resource=ns&namespace=shop-dev"] {
        let told = why(&amy, query).await;
        assert_eq!((&told["right"], &told["role"]), (&json!("Namespaces"), &json!("owner")), "{told}");
        let told = why(&dan, query).await;
        assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("no-namespace-right")), "{told}");
        assert_eq!(told["remedy"]["by"], json!([{"kind": "User", "name": "amy", "as": "owner"}]));
    }
    let told = why(&server.client("vera").await, "verb=create&resource=ns&name=shop-new").await;
    assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("no-namespace-right")), "{told}");
    let told = amy.get("explanations/who-can?verb=delete&resource=ns&namespace=shop-dev").await.ok();
    let names = |list: &Value, of: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|one| one.pointer(of).unwrap().clone()).collect()
    };
    assert_eq!(names(&told["users"], "/name"), ["amy"]);
    assert_eq!(names(&told["grants"], "/grant/name"), ["amy-grant"]);
}

#[tokio::test]
async fn a_refusal_says_what_is_missing_and_who_can_give_it() {
    let server = platform().await;
    let vera = server.client("vera").await;
    let told = why(&vera, "verb=create&resource=pods&namespace=shop-dev").await;
    assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("no-rule")));
    let remedy = &told["remedy"];
    assert_eq!((&remedy["roles"], &remedy["project"]), (&json!(["member", "owner"]), &json!("shop")));
    assert_eq!(
        remedy["by"],
        json!([{"kind": "User", "name": "amy", "as": "owner"}]),
        "root's grant is not hers to see"
    );

    // Her project, and not her namespace.
    let told = why(&vera, "verb=get&resource=pods&namespace=shop-prod").await;
    assert_eq!((&told["reason"], &told["project"]), (&json!("no-namespace"), &json!("shop")));
    let short = &told["grantsThatFallShort"];
    assert_eq!(
        (&short[0]["name"], &short[0]["why"]),
        (&json!("vera-grant"), &json!("is on the namespaces shop-dev only"))
    );

    // The administrators' view of the same.
    let root = server.client("root").await;
    let told = why(&root, "user=vera&verb=create&resource=pods&namespace=shop-dev").await;
    let by = told["remedy"]["by"].as_array().unwrap();
    assert!(by.contains(&json!({"kind": "User", "name": "root", "as": "platform administrator"})), "{told}");
    let told = why(&root, "user=nell&verb=get&resource=pods&namespace=shop-dev").await;
    assert_eq!(told["message"], "nell holds no role in namespace \"shop-dev\" of project \"shop\" on cluster \"demo\"");
    assert_eq!(told["remedy"]["roles"], json!(["viewer", "member", "owner"]));

    for (query, reason, remedy) in [
        ("verb=get&resource=widgets.example.com&namespace=shop-dev", "group-out-of-reach", "tenantAPIGroups"),
        ("verb=get&resource=pods/proxy&namespace=shop-dev", "proxy-subresource", "port-forward"),
        ("verb=list&resource=nodes", "across-namespaces", "none by a grant"),
        ("verb=get&resource=pods&namespace=shop-dev&project=vault", "no-cluster", "a grant on a project"),
    ] {
        let told = why(&vera, query).await;
        assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!(reason)), "{query}: {told}");
        assert!(told["remedy"]["text"].as_str().unwrap().contains(remedy), "{query}: {told}");
    }

    // What is changed by Git says so to everybody who may ask, with who can lift it for a time.
    server
        .change(Kind::Project, "shop", |project| {
            project["spec"]["clusters"][0]["changes"] = json!("git");
            project["spec"]["clusters"][0]["git"] =
                json!({"repository": "https://git.example.com/shop", "path": "prod"});
        })
        .await;
    let dan = server.client("dan").await;
    let amy = server.client("amy").await;
    for (asker, user) in [(&dan, ""), (&amy, "user=dan&"), (&root, "user=dan&")] {
        let told = why(asker, &format!("{user}verb=delete&resource=pods&namespace=shop-dev&cluster=demo")).await;
        assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("changes-by-git")), "{told}");
        assert!(told["message"].as_str().unwrap().contains("prod in https://git.example.com/shop"), "{told}");
        assert!(told["remedy"]["text"].as_str().unwrap().contains("spec.expiresAt"), "{told}");
        assert!(told["remedy"]["by"].to_string().contains("\"amy\""), "{told}");
    }
    server
        .change(Kind::Project, "shop", |project| {
            project["spec"]["clusters"][0]["changes"] = json!("anyone");
            project["spec"]["clusters"][0]["git"] = Value::Null;
        })
        .await;

    // A grant that has ended, one whose role the project does not use, and an account that is cut off.
    server.grant("nell", "User", "nell", "member", "Project", "shop").await;
    server.change(Kind::Grant, "nell-grant", |grant| grant["spec"]["expiresAt"] = json!("2020-01-01T00:00:00Z")).await;
    let nell = server.client("nell").await;
    let told = why(&nell, "verb=get&resource=pods&namespace=shop-dev&cluster=demo").await;
    assert_eq!(told["grantsThatFallShort"][0]["why"], "ended at 2020-01-01T00:00:00Z");
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}]);
    server.seed(Kind::AccessRole, "widgeter", json!({"rules": rules, "inherits": []}), json!({})).await;
    server.grant("nell2", "User", "nell", "widgeter", "Project", "shop").await;
    let told = why(&nell, "verb=get&resource=widgets&namespace=shop-dev&cluster=demo").await;
    assert_eq!(told["group"], "example.com", "found by the role that names it");
    assert_eq!(told["grantsThatFallShort"][1]["why"], "project shop does not use the role widgeter");
    server.change(Kind::User, "dan", |user| user["spec"]["disabled"] = json!(true)).await;
    let told = why(&root, "user=dan&verb=get&resource=pods&namespace=shop-dev").await;
    assert_eq!((&told["allowed"], &told["reason"]), (&json!(false), &json!("account-inactive")));
}

#[tokio::test]
async fn who_can_names_accounts_teams_and_their_grants() {
    let server = platform().await;
    for asker in ["root", "audrey", "amy"] {
        let client = server.client(asker).await;
        let told =
            client.get("explanations/who-can?verb=delete&resource=secrets&namespace=shop-dev&cluster=demo").await.ok();
        let names: Vec<_> = told["users"].as_array().unwrap().iter().map(|user| user["name"].clone()).collect();
        assert_eq!(names, ["amy", "dan", "dora", "olga"], "{asker}");
        let dan = &told["users"][1];
        assert_eq!((&dan["role"], &dan["grant"]["name"]), (&json!("member"), &json!("devs-grant")), "{asker}");
        // An owner learns who reaches into the project from outside, and nothing of the grant beyond its target.
        let outside = &told["users"][3]["grant"];
        assert_eq!(outside["target"], json!({"kind": "Cluster", "name": "demo"}));
        assert_eq!(outside["name"].is_string(), asker != "amy", "{outside}");
        let grants: Vec<_> =
            told["grants"].as_array().unwrap().iter().map(|grant| grant["grant"]["name"].clone()).collect();
        let seen = if asker == "amy" {
            vec!["amy-grant", "devs-grant"]
        } else {
            vec!["amy-grant", "devs-grant", "olga-grant"]
        };
        assert_eq!(grants, seen, "{asker}");
    }
    let root = server.client("root").await;
    for nobody in ["namespace=nothing", "namespace=kube-system"] {
        let told = root.get(&format!("explanations/who-can?verb=get&resource=pods&cluster=demo&{nobody}")).await.ok();
        assert_eq!((&told["users"], &told["grants"]), (&json!([]), &json!([])), "{nobody}");
        assert!(told["message"].as_str().unwrap().contains("no project has this namespace"), "{told}");
    }
    let told = root.get("explanations/who-can?verb=get&resource=pods/proxy&namespace=shop-dev").await.ok();
    assert_eq!((&told["users"], &told["reason"]), (&json!([]), &json!("proxy-subresource")));
}

#[tokio::test]
async fn others_are_asked_about_by_those_who_may() {
    let server = platform().await;
    let question = "verb=get&resource=pods&cluster=demo&namespace";
    // Everybody about oneself, platform roles about everybody, owners in their project's namespaces.
    for (asker, user, namespace) in [
        ("dan", "dan", "shop-dev"),
        ("nell", "nell", "shop-dev"),
        ("root", "dan", "shop-dev"),
        ("audrey", "otto", "vault-keys"),
        ("amy", "dan", "shop-prod"),
        ("amy", "otto", "shop-dev"),
    ] {
        why(&server.client(asker).await, &format!("user={user}&{question}={namespace}")).await;
    }
    for (asker, user, namespace) in [
        ("dan", "amy", "shop-dev"),
        ("vera", "dan", "shop-dev"),
        ("olga", "dan", "shop-dev"),
        ("amy", "otto", "vault-keys"),
        ("nell", "amy", "shop-dev"),
    ] {
        let client = server.client(asker).await;
        refused(&client, "why", &format!("user={user}&{question}={namespace}"), 403).await;
        refused(&client, "who-can", &format!("{question}={namespace}"), 403).await;
    }
    let dan = server.client("dan").await;
    let text = refused(&dan, "who-can", &format!("{question}=shop-dev"), 403).await;
    assert!(text.contains("owners of the project"), "who holds something there is told who may ask: {text}");
    // Without a namespace no owner has a say.
    let amy = server.client("amy").await;
    refused(&amy, "why", "user=dan&verb=list&resource=nodes&cluster=demo", 403).await;
    let root = server.client("root").await;
    refused(&root, "why", &format!("user=who&{question}=shop-dev"), 404).await;
    let kube = server.client_with("dan", Audience::Kube, TokenScopes::default()).await;
    refused(&kube, "why", &format!("{question}=shop-dev"), 401).await;
    refused(&server.anonymous(), "why", &format!("{question}=shop-dev"), 401).await;
}

/// Whatever is asked, by whom, about whom: a namespace of another project, one that nobody has and one of the cluster
/// itself get the same answer but for their names; so do clusters.
#[tokio::test]
async fn a_foreign_namespace_cannot_be_told_from_one_that_does_not_exist() {
    let server = platform().await;
    server.cluster("dark").await;
    for asker in ["amy", "dan", "vera", "nell"] {
        let client = server.client(asker).await;
        for (act, about) in [("why", ""), ("why", "user=otto&"), ("why", "user=nobody&"), ("who-can", "")] {
            for what in [
                "verb=get&resource=pods",
                "verb=delete&resource=secrets&name=x",
                "verb=get&resource=pods/proxy",
                "verb=get&resource=widgets.example.com",
            ] {
                let ask = async |cluster: &str, namespace: &str| {
                    let path = format!("explanations/{act}?{about}{what}&cluster={cluster}&namespace={namespace}");
                    let answer = client.get(&path).await;
                    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
                    (answer.status, text.replace(namespace, "NAMESPACE").replace(cluster, "CLUSTER"))
                };
                let foreign = ask("demo", "vault-keys").await;
                assert!(!foreign.1.contains("vault"), "{asker} {act} {about}: {}", foreign.1);
                for none in ["vault-none", "kube-system", "zzz"] {
                    assert_eq!(foreign, ask("demo", none).await, "{asker} {act} {about}{what}");
                }
                assert_eq!(
                    ask("dark", "vault-keys").await,
                    ask("absent", "vault-keys").await,
                    "{asker} {act} {about}{what}"
                );
            }
        }
    }
}

/// An owner may ask about accounts in the project's namespaces, and learns neither which accounts exist nor what else
/// they hold.
#[tokio::test]
async fn an_owner_learns_nothing_of_accounts_elsewhere() {
    let server = platform().await;
    server.grant("otto2", "User", "otto", "viewer", "Project", "vault").await;
    let amy = server.client("amy").await;
    let mut told = vec![];
    for user in ["otto", "nell", "absent"] {
        let answer = why(&amy, &format!("user={user}&verb=get&resource=pods&namespace=shop-dev")).await;
        assert_eq!(answer["allowed"], json!(false));
        told.push(answer.to_string().replace(user, "USER"));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[1], told[2]);
    assert!(!told[0].contains("vault"), "{}", told[0]);
}

#[tokio::test]
async fn the_limits_of_tokens_hold() {
    let server = platform().await;
    let scoped = |name: &str| Scoped { name: name.to_owned(), uid: Server::uid(name) };
    let limited = |projects: &[&str], clusters: &[&str], read_only| TokenScopes {
        clusters: clusters.iter().map(|name| scoped(name)).collect(),
        projects: projects.iter().map(|name| scoped(name)).collect(),
        read_only,
    };
    server.grant("otto3", "User", "otto", "owner", "Project", "shop").await;
    let api = |scopes| server.client_with("otto", Audience::Api, scopes);
    let reads = "verb=get&resource=pods&cluster=demo&namespace";
    // Beyond the limits of one's own token a namespace is as if it were not there.
    let otto = api(limited(&["vault"], &[], true)).await;
    assert_eq!(why(&otto, &format!("{reads}=vault-keys")).await["allowed"], json!(true));
    assert_eq!(why(&otto, "verb=create&resource=pods&cluster=demo&namespace=vault-keys").await["allowed"], json!(true));
    let told = why(&otto, &format!("{reads}=shop-dev")).await;
    assert_eq!((&told["reason"], &told["project"]), (&json!("no-namespace"), &Value::Null));
    otto.get(&format!("explanations/who-can?{reads}=vault-keys")).await.ok();
    refused(&otto, "who-can", &format!("{reads}=shop-dev"), 403).await;
    refused(&otto, "why", &format!("user=amy&{reads}=shop-dev"), 403).await;
    let root = server.client_with("root", Audience::Api, limited(&["vault"], &[], false)).await;
    refused(&root, "why", &format!("user=amy&{reads}=shop-dev"), 403).await;

    // By a token: with its limits, if it is the account's and may be seen.
    let otto = api(TokenScopes::default()).await;
    let narrow = server.client_with("otto", Audience::Kube, limited(&["shop"], &["demo"], true)).await;
    for (question, allowed, reason) in [
        ("verb=get&resource=pods&namespace=shop-dev", true, ""),
        ("verb=create&resource=pods&namespace=shop-dev", false, "token-read-only"),
        ("verb=get&resource=pods&namespace=vault-keys", false, "no-namespace"),
    ] {
        let told = why(&otto, &format!("{question}&cluster=demo&token={}", narrow.token_id())).await;
        assert_eq!(told["allowed"], json!(allowed), "{question}: {told}");
        assert_eq!(told["reason"].as_str().unwrap_or_default(), reason, "{question}");
    }
    let told = why(&otto, &format!("{reads}=shop-dev&token={}", otto.token_id())).await;
    assert_eq!(told["reason"], "token-audience");
    let dans = server.client_with("dan", Audience::Kube, TokenScopes::default()).await;
    for id in [dans.token_id(), "nonesuch"] {
        refused(&otto, "why", &format!("{reads}=shop-dev&token={id}"), 404).await;
        refused(&server.client("root").await, "why", &format!("user=amy&{reads}=shop-dev&token={id}"), 404).await;
    }
    server.change(Kind::User, "otto", |user| user["metadata"]["uid"] = json!("another")).await;
    let told =
        why(&server.client("root").await, &format!("user=otto&{reads}=shop-dev&token={}", narrow.token_id())).await;
    assert_eq!(told["allowed"], json!(false), "the token was the former account's");
}

#[tokio::test]
async fn questions_are_read_in_one_way_or_refused() {
    let server = platform().await;
    let (dan, root) = (server.client("dan").await, server.client("root").await);
    for (query, text) in [
        ("resource=pods", "verb: must be one of"),
        ("verb=use&resource=pods", "verb: must be one of"),
        ("verb=get", "resource"),
        ("verb=get&resource=*", "wildcards"),
        ("verb=get&resource=widgets&namespace=shop-dev", "write it with its group"),
        ("verb=get&resource=pods/exec&subresource=log", "not the same"),
        ("verb=get&resource=pods&subresource=a/b", "subresource"),
        ("verb=get&resource=pods&namespace=a/b", "namespace"),
        ("verb=get&resource=pods&namespace=..", "namespace"),
        ("verb=get&resource=pods&cluster=%00", "cluster"),
        ("verb=get&resource=pods&name=a/b", "name"),
        ("verb=get&resource=pods&namspace=shop-dev", "there is no parameter \"namspace\""),
        ("verb=get&resource=pods&namespace=shop-dev&namespace=shop-prod", "given twice"),
        ("verb=get&resource=pods&user=-", "user"),
        ("verb=get&resource=ns&name=shop-dev&namespace=shop-prod", "by its name alone"),
        ("verb=get&resource=/api/v1/pods", "the resource's name"),
        ("verb=get&resource=/api/../x", "resource"),
    ] {
        let told = refused(&dan, "why", query, 400).await;
        assert!(told.contains(text), "{query}: {told}");
    }
    refused(&root, "who-can", "verb=get&resource=pods", 400).await;
    refused(&root, "who-can", "verb=get&resource=pods&namespace=shop-dev&user=dan", 400).await;
    // Which cluster, where there is a choice.
    assert_eq!(why(&dan, "verb=get&resource=pods&namespace=shop-dev").await["cluster"], "demo");
    server.cluster("east").await;
    assert_eq!(why(&dan, "verb=get&resource=pods&namespace=shop-dev").await["cluster"], "demo", "the other is not his");
    let told = refused(&root, "why", "verb=get&resource=pods&namespace=shop-dev", 400).await;
    assert!(told.contains("demo, east"), "{told}");
    assert!(refused(&server.client("nell").await, "why", "verb=get&resource=pods", 400).await.contains("none is open"));
}

#[tokio::test]
async fn questions_are_recorded_as_reads() {
    let server = platform().await;
    let root = server.client("root").await;
    why(&root, "user=dan&verb=get&resource=pods&namespace=shop-dev").await;
    let records = server.records().await;
    let record = records.iter().find(|record| record.what.verb == "why").unwrap();
    assert_eq!((record.what.user.as_str(), record.what.name.as_str()), ("root", "dan"));
    assert_eq!((record.what.resource.as_str(), record.what.namespace.as_str()), ("explanations", "shop-dev"));
    assert_eq!(record.stage, crate::audit::Stage::Read);
}
