//! Kubeconfigs: a context for each cluster, one for each project on each cluster, and one token in it.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::PublicEndpoint;
use super::reach::Reach;
use super::yaml::to_yaml;

/// Writes a kubeconfig. The order is that of names, so that two of the same reach differ in the token only.
///
/// The cluster `<cluster>` is the whole cluster, as far as the account gets; `<project>@<cluster>` is the same cluster
/// seen from one project, which is what a namespace is created in. The current context is the first of a project.
pub(super) fn render(
    public: &PublicEndpoint,
    user: &str,
    token: &Zeroizing<String>,
    reach: &Reach,
    clusters: &BTreeSet<String>,
) -> Zeroizing<String> {
    let base = format!("{}/k8s/clusters", public.url.trim_end_matches('/'));
    let mut servers = vec![];
    let mut contexts = vec![];
    let mut add = |name: String, server: String, namespace: Option<&String>| {
        let mut cluster = Map::from_iter([("server".to_owned(), Value::String(server))]);
        if let Some(pem) = &public.certificate_authority {
            cluster.insert("certificate-authority-data".to_owned(), Value::String(STANDARD.encode(pem)));
        }
        servers.push(json!({"name": name, "cluster": cluster}));
        let mut context = json!({"cluster": name, "user": user});
        if let Some(namespace) = namespace {
            context["namespace"] = Value::String(namespace.clone());
        }
        contexts.push(json!({"name": name, "context": context}));
    };
    let places = |cluster: &str| {
        let cluster = cluster.to_owned();
        reach.projects.iter().filter_map(move |project| {
            let place = project.clusters.iter().find(|place| place.name == cluster)?;
            Some((project, place))
        })
    };
    let mut current = None;
    for cluster in clusters {
        let first = places(cluster).find_map(|(_, place)| place.namespaces.first());
        add(cluster.clone(), format!("{base}/{cluster}"), first);
        for (project, place) in places(cluster) {
            let name = format!("{}@{cluster}", project.name);
            current.get_or_insert_with(|| name.clone());
            add(name, format!("{base}/{cluster}/projects/{}", project.name), place.namespaces.first());
        }
    }
    let current = current.or_else(|| clusters.first().cloned()).unwrap_or_default();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": servers,
        "contexts": contexts,
        "current-context": current,
        "users": [{"name": user, "user": {"token": token.as_str()}}],
    });
    Zeroizing::new(to_yaml(&config))
}

#[cfg(test)]
mod tests {
    use super::super::reach::{ClusterReach, ProjectReach};
    use super::*;

    fn reach() -> Reach {
        let place = |name: &str, namespaces: &[&str]| ClusterReach {
            name: name.to_owned(),
            namespaces: namespaces.iter().map(|n| n.to_string()).collect(),
            prefix: None,
        };
        let project = |name: &str, clusters| ProjectReach {
            name: name.to_owned(),
            uid: "u".to_owned(),
            roles: BTreeSet::new(),
            clusters,
        };
        Reach {
            projects: vec![
                project("billing", vec![place("east", &[])]),
                project("shop", vec![place("east", &["shop-web", "shop-db"]), place("west", &["shop-eu"])]),
            ],
            clusters: BTreeSet::from(["east".to_owned(), "west".to_owned()]),
            platform: BTreeSet::new(),
            teams: BTreeSet::new(),
        }
    }

    fn config(public: &PublicEndpoint) -> Value {
        let reach = reach();
        let token = Zeroizing::new("bwk_x_y".to_owned());
        serde_saphyr::from_str(&render(public, "jane", &token, &reach, &reach.clusters)).unwrap()
    }

    #[test]
    fn contexts_of_clusters_and_of_projects_on_them() {
        let public = PublicEndpoint {
            url: "https://bailiwick.example.com/".to_owned(),
            certificate_authority: Some(b"pem".to_vec()),
        };
        let config = config(&public);
        let contexts: Vec<_> =
            config["contexts"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(contexts, ["east", "billing@east", "shop@east", "west", "shop@west"]);
        assert_eq!(config["contexts"][0]["context"]["namespace"], "shop-web");
        assert!(config["contexts"][1]["context"].get("namespace").is_none());
        assert_eq!(config["contexts"][4]["context"]["namespace"], "shop-eu");
        let shop = &config["clusters"][2]["cluster"];
        assert_eq!(shop["server"], "https://bailiwick.example.com/k8s/clusters/east/projects/shop");
        assert_eq!(shop["certificate-authority-data"], "cGVt");
        assert_eq!(config["current-context"], "billing@east");
        assert_eq!(config["users"].as_array().unwrap().len(), 1);
        assert_eq!(config["users"][0]["user"]["token"], "bwk_x_y");
    }

    #[test]
    fn a_public_chain_needs_no_ca() {
        let public = PublicEndpoint { url: "https://bailiwick.example.com".to_owned(), certificate_authority: None };
        let config = config(&public);
        assert!(config["clusters"][0]["cluster"].get("certificate-authority-data").is_none());
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://bailiwick.example.com/k8s/clusters/east");
    }
}
