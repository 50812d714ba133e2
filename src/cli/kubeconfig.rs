//! `bailiwick kubeconfig`, and the context `bailiwick` for the service's own API.

use std::env;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::args::{KubeconfigArgs, ScopeArgs};
use super::client::{Trust, resource_path};
use super::exit::{Failure, Outcome};
use super::files::{self, KubeconfigLock};
use super::session::{self, Session};
use super::{documents, output};

mod merge;

/// Name of our entries for the service's own API.
const OWN: &str = "bailiwick";

/// `bailiwick kubeconfig`.
pub async fn run(args: KubeconfigArgs) -> Outcome {
    let KubeconfigArgs { scopes, user, description, output: file, merge, connect } = args;
    let client = session::connect(&connect)?;
    let ScopeArgs { clusters, projects, read_only, expires } = scopes;
    let mut body = json!({"readOnly": read_only, "description": description});
    if !clusters.is_empty() {
        body["clusters"] = json!(clusters);
    }
    if !projects.is_empty() {
        body["projects"] = json!(projects);
    }
    if let Some(expires) = expires {
        body["expiresInSeconds"] = json!(expires.0.as_secs());
    }
    // Before a token is made that nobody would get.
    if let Some(path) = &merge {
        read(path)?;
    }
    let path = resource_path("users", Some(user.as_deref().unwrap_or("me"))) + "/kubeconfig";
    let answer = client.call(Method::POST, &path, Some(&body)).await?;
    let text = answer["kubeconfig"]
        .as_str()
        .ok_or_else(|| Failure::Failed("the server's answer holds no kubeconfig".to_owned()))?;
    let target = match (file, merge) {
        (Some(file), _) => {
            files::write_private(&file, text)?;
            file
        }
        (None, Some(file)) => {
            let ours = documents::one("the server's kubeconfig", text)?;
            let merged = change(&file, |config| merge::merge(config, &ours, client.base().as_str()));
            if let Err(failure) = merged {
                // Nobody has it, so nobody may use it.
                let id = answer["tokenID"].as_str().unwrap_or_default();
                let _ = client.call(Method::DELETE, &resource_path("tokens", Some(id)), None).await;
                return Err(failure);
            }
            file
        }
        (None, None) => return output::print(text),
    };
    let contexts = documents::one("the server's kubeconfig", text)?["contexts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["name"].as_str().map(str::to_owned))
        .collect::<Vec<_>>();
    output::complain(&format!("{} now has the contexts {}", target.display(), contexts.join(", ")));
    Ok(())
}

/// Which kubeconfig `login` writes to: the first of $KUBECONFIG, or ~/.kube/config.
pub fn default_path() -> Outcome<PathBuf> {
    if let Some(first) =
        env::var_os("KUBECONFIG").and_then(|all| env::split_paths(&all).find(|p| !p.as_os_str().is_empty()))
    {
        return Ok(first);
    }
    let home = env::var_os("HOME").filter(|h| !h.is_empty());
    let home = home.ok_or_else(|| Failure::Usage("neither KUBECONFIG nor HOME is set".to_owned()))?;
    Ok(PathBuf::from(home).join(".kube/config"))
}

/// Adds or updates the context for the service's own API.
pub fn add_own(path: &Path, session: &Session) -> Outcome {
    let mut cluster = json!({"server": session.url});
    if let Trust::Only(pem) = session.trust() {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(pem));
    }
    let ours = json!({
        "clusters": [{"name": OWN, "cluster": cluster}],
        "users": [{"name": OWN, "user": {"token": session.token}}],
        "contexts": [{"name": OWN, "context": {"cluster": OWN, "user": OWN}}],
    });
    change(path, |config| merge::merge(config, &ours, &session.url))
}

/// Takes that context out again.
pub fn remove_own(path: &Path, session: &Session) -> Outcome {
    if !path.exists() {
        return Ok(());
    }
    change(path, |config| merge::remove(config, OWN, &session.url))
}

/// Reads, changes and writes a kubeconfig under its lock. What stays the same is not written.
fn change(path: &Path, with: impl FnOnce(Value) -> Result<Value, merge::MergeError>) -> Outcome {
    let _lock = KubeconfigLock::take(path)?;
    let before = read(path)?;
    let after = with(before.clone()).map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))?;
    if after == before { Ok(()) } else { files::write_private(path, &output::yaml(&after)?) }
}

fn read(path: &Path) -> Outcome<Value> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    documents::one(&path.display().to_string(), &files::read_text(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn session() -> Session {
        Session {
            url: "https://x.example.com".to_owned(),
            ca: Some("PEM".to_owned()),
            user: "jane".to_owned(),
            token_id: "id".to_owned(),
            token: "bwk_id_secret".to_owned(),
            expires_at: String::new(),
        }
    }

    #[test]
    fn the_own_context_comes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kube/config");
        add_own(&path, &session()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config = read(&path).unwrap();
        assert_eq!(config["current-context"], "bailiwick");
        assert_eq!(config["users"][0]["user"]["token"], "bwk_id_secret");
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], "UEVN");
        remove_own(&path, &session()).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("bwk_"));
        assert!(!path.with_file_name("config.lock").exists());
    }

    #[test]
    fn a_foreign_context_of_our_name_stays_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let theirs = "contexts: [{name: bailiwick, context: {cluster: a, user: b}}]\n";
        fs::write(&path, theirs).unwrap();
        let failure = add_own(&path, &session()).unwrap_err();
        assert!(failure.to_string().contains("context \"bailiwick\""), "{failure}");
        assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
    }

    #[test]
    fn a_file_that_is_no_yaml_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        fs::write(&path, "a: 1\nb: [\n").unwrap();
        let failure = add_own(&path, &session()).unwrap_err();
        assert!(failure.to_string().contains("config:"), "{failure}");
        assert_eq!(failure.code(), 2);
    }
}
