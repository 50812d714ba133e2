use super::*;
use crate::cli::fake::{Fake, status};

fn request(path: &Path) -> Request<'_> {
    Request { name: "demo", kubeconfig: path, context: None, display_name: None, tenant_api_groups: vec![] }
}

#[test]
fn a_wrong_file_is_wrong_use_and_a_cluster_that_refuses_is_not() {
    let context = ImportError::Context { context: "a".to_owned(), why: "is empty".to_owned() };
    assert_eq!(failure(&context).code(), 2);
    assert!(failure(&context).to_string().contains("\"a\""));
    assert_eq!(failure(&ImportError::NoSecret("forwarding-token")).code(), 1);
}

fn direct() -> DirectConnection {
    DirectConnection {
        server: "https://192.0.2.1:6443".to_owned(),
        certificate_authority: "PEM".to_owned(),
        tls_server_name: None,
        credential_from: None,
    }
}

#[tokio::test]
async fn a_new_cluster_is_created_and_one_that_exists_keeps_its_spec() {
    let path = Path::new("unused");
    let fake = Fake::start(|(method, _, body)| match method.as_str() {
        "GET" => status(404, "NotFound", "not found"),
        _ => (201, body.clone()),
    })
    .await;
    register(&fake.client, &request(path), &direct()).await.unwrap();
    assert_eq!(fake.asked()[1], "POST /apis/bailiwick.dev/v1alpha1/clusters");
    assert_eq!(fake.last_body()["spec"]["connection"]["direct"]["server"], "https://192.0.2.1:6443");

    let fake = Fake::start(|(method, _, body)| match method.as_str() {
        "GET" => (
            200,
            json!({"metadata": {"name": "demo", "resourceVersion": "7"}, "spec": {"displayName": "kept",
                "connection": {"direct": {"server": "https://192.0.2.9"}}}}),
        ),
        _ => (200, body.clone()),
    })
    .await;
    register(&fake.client, &request(path), &direct()).await.unwrap();
    assert_eq!(fake.asked()[1], "PUT /apis/bailiwick.dev/v1alpha1/clusters/demo");
    let sent = fake.last_body();
    assert_eq!(sent["metadata"]["resourceVersion"], "7");
    assert_eq!(sent["spec"]["displayName"], "kept");
    assert_eq!(sent["spec"]["connection"]["direct"]["server"], "https://192.0.2.1:6443");
}

#[tokio::test]
async fn the_same_connection_again_is_not_written() {
    let fake = Fake::start(|_| {
        let direct = serde_json::to_value(direct()).unwrap();
        (200, json!({"metadata": {"name": "demo"}, "spec": {"connection": {"direct": direct}}}))
    })
    .await;
    register(&fake.client, &request(Path::new("unused")), &direct()).await.unwrap();
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test]
async fn probing_goes_on_until_all_is_well() {
    let probes = std::sync::atomic::AtomicU32::new(0);
    let fake = Fake::start(move |_| {
        let ok = probes.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
        (200, json!({"ok": ok, "checks": []}))
    })
    .await;
    assert_eq!(probe(&fake.client, "/check").await.unwrap()["ok"], true);
    assert_eq!(fake.asked().len(), 2);
}
