//! `crds/` is what the Rust types say. After changing a type:
//! `BAILIWICK_REGENERATE=1 cargo test --test crds`, then look at the difference and commit it.

use std::path::PathBuf;

use bailiwick::resources::{AccessRole, Cluster, Grant, Project, Team, Token, User};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

fn all() -> Vec<CustomResourceDefinition> {
    vec![AccessRole::crd(), Cluster::crd(), Grant::crd(), Project::crd(), Team::crd(), Token::crd(), User::crd()]
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds")
}

fn rendered(crd: &CustomResourceDefinition) -> (PathBuf, String) {
    let yaml = serde_saphyr::to_string(crd).expect("a definition is plain data");
    (folder().join(format!("{}.yaml", crd.spec.names.plural)), yaml)
}

#[test]
fn the_files_are_what_the_types_say() {
    let files = all().iter().map(rendered).collect::<Vec<_>>();
    if std::env::var_os("BAILIWICK_REGENERATE").is_some() {
        for (path, yaml) in &files {
            std::fs::write(path, yaml).unwrap();
        }
    }
    for (path, yaml) in &files {
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == *yaml,
            "{} is not what the types say; run BAILIWICK_REGENERATE=1 cargo test --test crds",
            path.display()
        );
    }
    let mut present = std::fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path()).collect::<Vec<_>>();
    present.sort();
    let mut expected = files.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    expected.sort();
    assert_eq!(present, expected, "crds/ holds these files and no others");
}

#[test]
fn every_definition_is_cluster_scoped_in_our_group_and_category() {
    for crd in all() {
        let name = &crd.spec.names.kind;
        assert_eq!(crd.spec.group, "bailiwick.dev", "{name}");
        assert_eq!(crd.spec.scope, "Cluster", "{name}");
        assert_eq!(crd.spec.names.categories.as_deref(), Some(&["bailiwick".to_owned()][..]), "{name}");
        assert_eq!(crd.spec.versions.len(), 1, "{name}");
    }
}
