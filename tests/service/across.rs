//! Across namespaces: one's own are all that there is.

use serde_json::{Value, json};

use super::here::*;
use super::process::*;
use super::site::*;

/// Namespaces of the project `work`.
const OURS: [&str; 4] = ["work-one", "work-two", "work-pods", "work-restart"];

fn config_map(namespace: &str, name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": name, "namespace": namespace, "labels": {"across": label}}, "data": {"from": namespace}})
}

/// Makes ConfigMaps past the service: three in each of two namespaces of ours, one in a foreign one.
fn config_maps(site: &Site, label: &str) {
    let mut items = vec![config_map("other-api", &format!("{label}-foreign"), label)];
    for namespace in ["work-two", "work-pods"] {
        items.extend((1..=3).map(|n| config_map(namespace, &format!("{label}-{n}"), label)));
    }
    let mut apply = site.cluster_admin_command();
    apply.args(["apply", "-f", "-"]);
    run_with(apply, json!({"kind": "List", "apiVersion": "v1", "items": items}).to_string().as_bytes()).ok();
}

/// What the cluster's administrator sees of a list, of our namespaces only.
fn truth(site: &Site, args: &[&str]) -> Vec<Value> {
    let text = site.cluster_admin(&[args, &["-A", "-o", "json"]].concat()).ok();
    let list: Value = serde_json::from_str(&text).unwrap();
    let ours = |item: &&Value| OURS.contains(&item["metadata"]["namespace"].as_str().unwrap_or_default());
    sorted(list["items"].as_array().unwrap().iter().filter(ours).cloned().collect())
}

fn sorted(mut items: Vec<Value>) -> Vec<Value> {
    items.sort_by_key(|item| (item["metadata"]["namespace"].to_string(), item["metadata"]["name"].to_string()));
    items
}

fn items(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap();
    sorted(list["items"].as_array().unwrap().clone())
}

/// Waits for a line with all of these: kubectl fits its columns to what it has seen.
#[track_caller]
fn prints_line(running: &Running, words: &[&str]) {
    until(&format!("{} prints a line with {words:?}", running.what), || {
        let text = running.text();
        let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        if found { Ok(()) } else { Err(text) }
    });
}

#[test]
fn lists_show_ones_own_in_every_form() {
    let (site, _guard) = site();
    let member = site.machine("across-lists", &[("member", "work")]);
    config_maps(site, "lists");
    for context in ["demo", "work@demo"] {
        let run = |args: &[&str]| site.run(&member, context, args).ok();
        let select = ["get", "configmaps", "-A", "-l", "across=lists"];
        // Whole, and in pages that end within namespaces, at their ends, and after each object.
        for chunk in ["500", "1", "2", "3", "4", "0"] {
            let chunk = format!("--chunk-size={chunk}");
            let text = run(&[&select[..], &["-o", "json", &chunk]].concat());
            assert_eq!(items(&text), truth(site, &select[..2].iter().chain(&select[3..]).copied().collect::<Vec<_>>()));
        }
        let table = run(&select);
        has(&table, &["NAMESPACE", "work-two", "lists-1", "work-pods", "lists-3"]);
        assert_eq!(table.lines().count(), 7, "{table}");
        assert_eq!(run(&[&select[..], &["--chunk-size=2"]].concat()).lines().count(), 7);
        lacks(&table, &["other-api", "lists-foreign"]);
        has(&run(&[&select[..], &["-o", "wide"]].concat()), &["work-two", "lists-1"]);
        has(&run(&[&select[..], &["-o", "yaml"]].concat()), &["from: work-two", "name: lists-3"]);
        has(&run(&[&select[..], &["-o", "name"]].concat()), &["configmap/lists-2"]);
        let columns = ["-o", "custom-columns=NS:.metadata.namespace,N:.metadata.name", "--sort-by=.metadata.name"];
        has(&run(&[&select[..], &columns].concat()), &["work-pods", "lists-2"]);
        let one = run(&["get", "configmaps", "-A", "--field-selector", "metadata.name=lists-2", "-o", "name"]);
        assert_eq!(one.lines().count(), 2, "{one}");
        // Other kinds, all together, and events.
        let pods = run(&["get", "pods", "-A", "--field-selector", "metadata.name=busy", "-o", "json"]);
        assert_eq!(items(&pods).len(), 1);
        has(&run(&["get", "all", "-A"]), &["pod/busy"]);
        has(&run(&["describe", "configmaps", "-A", "-l", "across=lists"]), &["Namespace:    work-two"]);
        lacks(&run(&["get", "events", "-A"]), &["other-api", "kube-system"]);
        has(&run(&["get", "serviceaccounts,roles,deployments.apps", "-A"]), &["serviceaccount/default"]);
        for verb in ["list", "watch"] {
            assert_eq!(run(&["auth", "can-i", verb, "pods", "-A"]).trim(), "yes");
        }
        has(&site.run(&member, context, &["auth", "can-i", "list", "nodes"]).ends(1), &["no - nodes is forbidden"]);
    }
}

#[test]
fn what_a_role_does_not_permit_is_left_out_and_named() {
    let (site, _guard) = site();
    let mixed = site.machine("across-mixed", &[("member", "work"), ("viewer", "other")]);
    let pods = site.run(&mixed, "demo", &["get", "pods", "-A"]).ok();
    has(&pods, &["work-pods", "other-api"]);
    let secrets = site.run(&mixed, "demo", &["get", "secrets", "-A"]);
    has(&secrets.err, &["Warning:", "left out", "other-api"]);
    // Narrowed to one project, the other's namespaces are not even left out.
    lacks(&site.run(&mixed, "work@demo", &["get", "pods", "-A"]).ok(), &["other-api"]);
    let secrets = site.run(&mixed, "work@demo", &["get", "secrets", "-A"]);
    lacks(&secrets.text(), &["other-api"]);
    // With no right anywhere the refusal is that of a namespace.
    let text = site.run(&mixed, "other@demo", &["get", "secrets", "-A"]).ends(1);
    has(&text, &["secrets is forbidden", "holds viewer in project \"other\""]);
}

#[test]
fn watches_follow_all_and_begin_anew_when_the_set_changes() {
    let (site, _guard) = site();
    let member = site.machine("across-watches", &[("member", "work")]);
    for (context, name) in [("demo", "watched-1"), ("work@demo", "watched-2")] {
        let watch = Running::start(site.command(
            &member,
            context,
            &["get", "configmaps", "-A", "-l", &format!("across={name}"), "-w", "--output-watch-events"],
        ));
        let narrow = Running::start(site.command(
            &member,
            context,
            &["get", "configmaps", "-n", "work-two", "-l", &format!("across={name}"), "-w", "--output-watch-events"],
        ));
        config_maps(site, name);
        for n in 1..=3 {
            narrow.prints(&format!("{name}-{n}"));
            prints_line(&watch, &["ADDED", "work-two", &format!("{name}-{n}")]);
            prints_line(&watch, &["ADDED", "work-pods", &format!("{name}-{n}")]);
        }
        site.run(&member, context, &["delete", "configmaps", "-A", "-l", &format!("across={name}")]).ok();
        prints_line(&watch, &["DELETED", "work-two", &format!("{name}-3")]);
        lacks(&watch.text(), &["foreign", "other-api"]);
        // The foreign one is still there: nobody deletes what they do not see.
        site.cluster_admin(&["-n", "other-api", "get", "configmap", &format!("{name}-foreign")]).ok();
    }
}

#[test]
fn namespaces_are_ones_own() {
    let (site, _guard) = site();
    let member = site.machine("across-namespaces", &[("owner", "few"), ("viewer", "other")]);
    let watch = Running::start(site.command(&member, "demo", &["get", "ns", "-w", "--output-watch-events"]));
    watch.prints("other-api");
    has(&site.run(&member, "demo", &["get", "namespaces"]).ok(), &["NAME", "STATUS", "other-api", "Active"]);
    site.admin(&["project", "namespace", "create", "few", "few-across", "--cluster", "demo"]).ok();
    prints_line(&watch, &["ADDED", "few-across"]);
    let names = site.run(&member, "demo", &["get", "ns", "-o", "name"]).ok();
    assert_eq!(names.lines().collect::<Vec<_>>(), ["namespace/few-across", "namespace/other-api"]);
    has(&site.run(&member, "few@demo", &["get", "ns"]).ok(), &["few-across"]);
    lacks(&site.run(&member, "few@demo", &["get", "ns"]).ok(), &["other-api"]);
    has(&site.run(&member, "demo", &["describe", "ns"]).ok(), &["Name:         few-across", "Name:         other-api"]);
    has(
        &site.run(&member, "demo", &["get", "ns", "-l", "bailiwick.dev/project=few", "-o", "name"]).ok(),
        &["few-across"],
    );
    let none = site.run(&member, "demo", &["get", "ns", "-l", "a=b"]);
    has(&none.text(), &["No resources found"]);
    for chunk in ["--chunk-size=1", "--chunk-size=0"] {
        assert_eq!(site.run(&member, "demo", &["get", "ns", "-o", "name", chunk]).ok(), names);
    }
    lacks(&site.run(&member, "demo", &["get", "ns", "-o", "json"]).ok(), &["kube-system", "work-"]);
    site.admin(&["project", "namespace", "delete", "few", "few-across", "--cluster", "demo"]).ok();
    prints_line(&watch, &["DELETED", "few-across"]);
}

#[test]
fn foreign_continue_tokens_and_unknown_parameters_are_refused() {
    let (site, _guard) = site();
    let one =
        Here::new(site, site.machine("across-one", &[("member", "work")]), "demo", "work-one", Protocol::WebSocket);
    let two =
        Here::new(site, site.machine("across-two", &[("member", "work")]), "demo", "work-one", Protocol::WebSocket);
    config_maps(site, "tokens");
    let get = |here: &Here, query: &str| here.run(&["get", "--raw", &here.raw(&format!("/api/v1/configmaps?{query}"))]);
    let first: Value = serde_json::from_str(&get(&one, "limit=1").ok()).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    get(&one, &format!("limit=1&continue={token}")).ok();
    for (here, query) in [
        (&two, format!("limit=1&continue={token}")),
        (&one, format!("limit=1&continue={token}&labelSelector=a%3Db")),
        (&one, format!("limit=1&continue={}", &token[1..])),
        (&one, "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0".to_owned()),
    ] {
        has(&get(here, &query).fails(), &["was not given for this list"]);
    }
    let secrets = one.run(&["get", "--raw", &one.raw(&format!("/api/v1/secrets?limit=1&continue={token}"))]);
    has(&secrets.fails(), &["was not given for this list"]);
    has(&get(&one, "shardSelector=x").fails(), &["shardSelector is not supported across namespaces"]);
    has(&get(&one, "limit=1&limit=2").fails(), &["more than once"]);
}
