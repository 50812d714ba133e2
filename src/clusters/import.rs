//! What `bailiwick cluster import` does on the administrator's machine: reads, with the administrator's own kubeconfig,
//! where the cluster is and the two accounts' tokens. Nothing else of the kubeconfig is sent anywhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::client::{Ask, ask, explain};
use super::endpoint::{Endpoint, EndpointError};
use super::names::*;
use super::version::Version;
use crate::resources::cluster::DirectConnection;

/// How long the token controller is waited for after the manifest was applied.
const TOKENS: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// What is sent to the service.
pub struct Imported {
    /// For the Cluster's spec.
    pub connection: DirectConnection,
    /// Token of the forwarding account.
    pub forwarding: Zeroizing<String>,
    /// Token of the housekeeping account.
    pub housekeeping: Zeroizing<String>,
    /// UID of kube-system.
    pub kube_system_uid: String,
    /// Version of the cluster.
    pub version: Version,
    /// As the server writes it.
    pub git_version: String,
}

/// Why nothing was read. The messages say what to do.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The context.
    #[error("context {context:?}: {why}")]
    Context {
        /// Which.
        context: String,
        /// What is wrong, and what would do.
        why: String,
    },
    /// Address or CA.
    #[error("the kubeconfig's cluster cannot be used: {0}")]
    Endpoint(EndpointError),
    /// No answer, or a refusal.
    #[error("{what}: {why}")]
    Cluster {
        /// What was asked.
        what: String,
        /// Why it failed.
        why: String,
    },
    /// The manifest was not applied.
    #[error(
        "the Secret {SYSTEM_NAMESPACE}/{0} does not exist; apply the manifest first: bailiwick cluster manifest NAME | kubectl apply --server-side -f -"
    )]
    NoSecret(&'static str),
    /// The token controller did not fill a Secret.
    #[error("the Secret {SYSTEM_NAMESPACE}/{0} has had no token for 10 s; is the controller manager running?")]
    NoToken(&'static str),
}

/// Reads a cluster with a kubeconfig: this file and this context only, no environment.
pub async fn read(file: &Path, context: Option<&str>) -> Result<Imported, ImportError> {
    let in_file = |why: String| ImportError::File { file: file.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(file).map_err(|why| in_file(explain(&why)))?;
    let name = match context {
        Some(name) => name.to_owned(),
        None => kubeconfig.current_context.clone().filter(|name| !name.is_empty()).ok_or_else(|| {
            in_file(format!("has no current context; name one with --context ({})", names(&kubeconfig)))
        })?,
    };
    check_context(&kubeconfig, &name)?;
    let in_context = |why: String| ImportError::Context { context: name.clone(), why };
    let options = KubeConfigOptions { context: Some(name.clone()), ..KubeConfigOptions::default() };
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|why| in_context(explain(&why)))?;
    // Proxies of the environment are no part of the file that was named.
    config.proxy_url = None;
    let connection = connection(&config).map_err(in_context)?;
    Endpoint::from_direct(&connection).map_err(ImportError::Endpoint)?;
    let client = kube::Client::try_from(config).map_err(|why| in_context(explain(&why)))?;

    let version = read_json(&client, "/version", "asking for the version").await?;
    let git_version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    let version = Version::parse(&git_version)
        .map_err(|why| ImportError::Cluster { what: "asking for the version".into(), why: why.to_string() })?;
    let what = "reading the namespace kube-system";
    let namespace = read_json(&client, "/api/v1/namespaces/kube-system", what).await?;
    let kube_system_uid = namespace["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if kube_system_uid.is_empty() {
        return Err(ImportError::Cluster { what: what.into(), why: "it has no UID".into() });
    }
    Ok(Imported {
        connection,
        forwarding: token(&client, FORWARDING_SECRET, FORWARDING).await?,
        housekeeping: token(&client, HOUSEKEEPING_SECRET, HOUSEKEEPING).await?,
        kube_system_uid,
        version,
        git_version,
    })
}

fn names(kubeconfig: &Kubeconfig) -> String {
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
}

fn check_context(kubeconfig: &Kubeconfig, name: &str) -> Result<(), ImportError> {
    let fail = |why: String| Err(ImportError::Context { context: name.to_owned(), why });
    let Some(context) = kubeconfig.contexts.iter().find(|context| context.name == name) else {
        return fail(format!("is not in the kubeconfig; {}", names(kubeconfig)));
    };
    let Some(context) = &context.context else { return fail("is empty".into()) };
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_ref()) else {
        return fail(format!("its cluster {:?} is not in the kubeconfig", context.cluster));
    };
    if cluster.insecure_skip_tls_verify == Some(true) {
        return fail("its cluster has insecure-skip-tls-verify; the service needs the cluster's CA".into());
    }
    if cluster.certificate_authority.is_none() && cluster.certificate_authority_data.is_none() {
        return fail(
            "its cluster has no certificate-authority; the service trusts nothing but the cluster's CA".into(),
        );
    }
    if cluster.proxy_url.is_some() {
        return fail("its cluster is reached by a proxy (proxy-url); the service dials the API server itself".into());
    }
    if let Some(user) = &context.user
        && !kubeconfig.auth_infos.iter().any(|info| info.name == *user)
    {
        return fail(format!("its user {user:?} is not in the kubeconfig"));
    }
    Ok(())
}

fn connection(config: &kube::Config) -> Result<DirectConnection, String> {
    let roots = config.root_cert.as_deref().unwrap_or_default();
    if roots.is_empty() || config.accept_invalid_certs {
        return Err("its cluster has no usable certificate-authority".into());
    }
    let server = config.cluster_url.to_string();
    Ok(DirectConnection {
        server: server.trim_end_matches('/').to_owned(),
        certificate_authority: roots.iter().map(|der| pem(der)).collect(),
        tls_server_name: config.tls_server_name.clone(),
        credential_from: None,
    })
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

async fn read_json(client: &kube::Client, path: &str, what: &str) -> Result<serde_json::Value, ImportError> {
    let fail = |why: String| ImportError::Cluster { what: what.to_owned(), why };
    let answer = ask(client, &[], &Ask::get(path)).await.map_err(fail)?;
    if answer.ok() { Ok(answer.body) } else { Err(fail(answer.message())) }
}

/// Waits for the token controller to fill a Secret.
async fn token(client: &kube::Client, secret: &'static str, account: &str) -> Result<Zeroizing<String>, ImportError> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{secret}");
    let fail =
        |why: String| ImportError::Cluster { what: format!("reading the Secret {SYSTEM_NAMESPACE}/{secret}"), why };
    let deadline = Instant::now() + TOKENS;
    loop {
        let answer = ask(client, &[], &Ask::get(&path)).await.map_err(fail)?;
        if answer.status == 404 {
            return Err(ImportError::NoSecret(secret));
        }
        if !answer.ok() {
            return Err(fail(answer.message()));
        }
        let of = &answer.body["metadata"]["annotations"]["kubernetes.io/service-account.name"];
        if of.as_str() != Some(account) {
            return Err(fail(format!("it is not the token of {SYSTEM_NAMESPACE}/{account}; apply the manifest")));
        }
        if let Some(text) = answer.body["data"]["token"].as_str().filter(|text| !text.is_empty()) {
            let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| fail("its token is not base64".into()))?);
            let token = std::str::from_utf8(&bytes).map_err(|_| fail("its token is not text".into()))?;
            return Ok(Zeroizing::new(token.to_owned()));
        }
        if Instant::now() >= deadline {
            return Err(ImportError::NoToken(secret));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: ''\n\
             clusters: [{{name: c, cluster: {cluster}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: demo-admin, context: {{cluster: c, user: u}}}}, {{name: lost, context: {{cluster: x}}}},\n\
             {{name: nobody, context: {{cluster: c, user: x}}}}]\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    const GOOD: &str = "{server: 'https://kube.example.com', certificate-authority-data: QQ==}";

    #[test]
    fn unusable_contexts_say_what_is_wrong() {
        assert!(check_context(&kubeconfig(GOOD), "demo-admin").is_ok());
        for (cluster, context, text) in [
            (GOOD, "other", "it has demo-admin, lost"),
            (GOOD, "lost", "\"x\" is not in the kubeconfig"),
            (GOOD, "nobody", "user \"x\""),
            ("{server: 'https://k', insecure-skip-tls-verify: true}", "demo-admin", "insecure-skip-tls-verify"),
            ("{server: 'https://k'}", "demo-admin", "no certificate-authority"),
            (
                "{server: 'https://k', certificate-authority-data: QQ==, proxy-url: 'http://p.example.com'}",
                "demo-admin",
                "proxy-url",
            ),
        ] {
            let error = check_context(&kubeconfig(cluster), context).unwrap_err().to_string();
            assert!(error.contains(text), "{cluster} {context}: {error}");
        }
    }

    #[tokio::test]
    async fn unusable_files_say_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let missing = read(&folder.path().join("none"), None).await.err().unwrap().to_string();
        assert!(missing.contains("none"), "{missing}");
        let file = folder.path().join("config");
        std::fs::write(&file, "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: c}}]\n").unwrap();
        let error = read(&file, None).await.err().unwrap().to_string();
        assert!(error.contains("--context (it has a)"), "{error}");
    }

    #[test]
    fn certificates_are_written_as_pem() {
        use rustls::pki_types::pem::PemObject as _;
        let der = vec![7u8; 100];
        let read = rustls::pki_types::CertificateDer::from_pem_slice(pem(&der).as_bytes()).unwrap();
        assert_eq!(read.to_vec(), der);
    }
}
