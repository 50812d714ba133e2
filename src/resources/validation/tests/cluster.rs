use serde_json::json;

use super::*;

const CLUSTER: ResourceKind = ResourceKind::Cluster;

fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["api.example.com".into()]).unwrap().self_signed(&key).unwrap().pem()
}

fn key() -> String {
    rcgen::KeyPair::generate().unwrap().serialize_pem()
}

fn spec() -> Value {
    json!({"connection": {"direct": {"server": "https://api.example.com:6443", "certificateAuthority": authority()}}})
}

#[test]
fn exactly_one_connection() {
    accepted(CLUSTER, &World::default(), spec());
    refused(CLUSTER, &World::default(), json!({"connection": {}}), &["spec.connection"]);
    refused(CLUSTER, &World::default(), json!({"connection": {"agent": {}}}), &["spec.connection.agent"]);
}

#[test]
fn the_server_is_https_host_and_port() {
    let at = |server: &str| with(&spec(), "/connection/direct/server", json!(server));
    for server in [
        "https://api.example.com",
        "https://10.0.0.1:6443",
        "https://127.0.0.1:6443",
        "https://[2001:db8::1]:6443",
        "https://[::1]",
        "https://localhost:443",
    ] {
        accepted(CLUSTER, &World::default(), at(server));
    }
    for server in [
        "",
        "https://",
        "http://api.example.com",
        "HTTPS://api.example.com",
        "https://api.example.com/",
        "https://api.example.com/k8s",
        "https://api.example.com?x",
        "https://api.example.com#x",
        "https://user@api.example.com",
        "https://user:pw@api.example.com",
        "https://api.example.com:",
        "https://api.example.com:0",
        "https://api.example.com:0443",
        "https://api.example.com:65536",
        "https://api.example.com:+443",
        "https://api.example.com:443:443",
        "https://api_example.com",
        "https://Api.example.com",
        "https://api.example.com\\@evil.example",
        "https://api.example.com%2f",
        "https://2130706433",
        "https://0x7f.1",
        "https://0x7f000001",
        "https://127.1",
        "https://[::1",
        "https://[fe80::1%25eth0]",
        "https://169.254.169.254",
        "https://[fe80::1]",
        "https://[::ffff:169.254.169.254]",
        "https://0.0.0.0:6443",
        "https://[::]",
        "https://224.0.0.1",
        " https://api.example.com",
        "https://api.example.com\n",
    ] {
        refused(CLUSTER, &World::default(), at(server), &["spec.connection.direct.server"]);
    }
}

#[test]
fn the_authority_is_certificates_and_nothing_else() {
    let trusting = |pem: &str| with(&spec(), "/connection/direct/certificateAuthority", json!(pem));
    let (one, other, secret) = (authority(), authority(), key());
    accepted(CLUSTER, &World::default(), trusting(&format!("{one}{other}")));
    accepted(CLUSTER, &World::default(), trusting(&format!("# our CA\n{one}")));
    let cut = one.replacen('\n', "\nAAAA", 1);
    let base64 = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUI=";
    let open = "-----BEGIN CERTIFICATE-----\nMIIB\n";
    let empty = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let long = format!("{one}{}", "#".repeat(70_000));
    for pem in ["", "x", base64, open, empty, &secret, &format!("{one}{secret}"), &cut, &long, &one.repeat(51)] {
        refused(CLUSTER, &World::default(), trusting(pem), &["spec.connection.direct.certificateAuthority"]);
    }
    // Not even in part does the answer repeat what may be a key.
    let causes = validate(CLUSTER, None, &object(CLUSTER, "x", trusting(&secret)), &World::default()).unwrap_err();
    assert!(!causes[0].message.contains(secret.lines().nth(1).unwrap()), "{causes:?}");
}

#[test]
fn the_name_in_the_certificate_is_a_name() {
    let named = |name: &str| with(&spec(), "/connection/direct/tlsServerName", json!(name));
    accepted(CLUSTER, &World::default(), named("kubernetes.default.svc"));
    accepted(CLUSTER, &World::default(), named("10.0.0.1"));
    for name in ["", "*.example.com", "a b", "https://x"] {
        refused(CLUSTER, &World::default(), named(name), &["spec.connection.direct.tlsServerName"]);
    }
}

#[test]
fn versions_form_a_range() {
    let range = |range: Value| with(&spec(), "/acceptedVersions", range);
    for ok in [
        json!({}),
        json!({"min": "1.33"}),
        json!({"max": "1.30"}),
        json!({"min": "1.28", "max": "1.28"}),
        json!({"min": "1.33", "max": "1.37"}),
    ] {
        accepted(CLUSTER, &World::default(), range(ok));
    }
    let (min, max) = ("spec.acceptedVersions.min", "spec.acceptedVersions.max");
    for (bad, field) in [
        (json!({"min": "1.34", "max": "1.33"}), max),
        // Without a minimum the range begins at 1.30.
        (json!({"max": "1.29"}), max),
        (json!({"min": "v1.33"}), min),
        (json!({"min": "1.33.1"}), min),
        (json!({"min": "1"}), min),
        (json!({"min": "1."}), min),
        (json!({"min": "01.33"}), min),
        (json!({"min": "1.033"}), min),
        (json!({"min": "0.9"}), min),
        (json!({"max": "1.99999"}), max),
        (json!({"max": ""}), max),
    ] {
        refused(CLUSTER, &World::default(), range(bad), &[field]);
    }
}

#[test]
fn tenant_groups_are_named_and_harmless() {
    let open = |groups: Value| with(&spec(), "/tenantAPIGroups", groups);
    accepted(CLUSTER, &World::default(), open(json!(["example.com", "gateway.networking.k8s.io"])));
    for group in [
        "*",
        "",
        "apps",
        "metrics.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "apiregistration.k8s.io",
        "bailiwick.dev",
        "x.bailiwick.dev",
        "*.example.com",
        "Example.com",
        "example..com",
    ] {
        refused(CLUSTER, &World::default(), open(json!(["a.example.com", group])), &["spec.tenantAPIGroups[1]"]);
    }
    refused(CLUSTER, &World::default(), open(json!(["example.com", "example.com"])), &["spec.tenantAPIGroups[1]"]);
}

#[test]
fn a_credential_comes_from_a_plain_name() {
    let from = |source: Value| with(&spec(), "/connection/direct/credentialFrom", source);
    let field = "spec.connection.direct.credentialFrom.file";
    for name in ["demo", "demo.json", "a_b-c.1"] {
        accepted(CLUSTER, &World::default(), from(json!({"file": name})));
    }
    for name in ["", ".", "..", ".hidden", "a/b", "/etc/shadow", "../shadow", "a\\b", "a b", "-x", "é"] {
        refused(CLUSTER, &World::default(), from(json!({"file": name})), &[field]);
    }
}
