//! The remembered sign-in, and which server and credential a command uses.
//!
//! A token goes only to the server that it was given for: an address from the command line or the environment that
//! differs from the remembered one needs its own sign-in.

use std::env;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::args::Connect;
use super::client::{BaseUrl, Client, Trust};
use super::exit::{Failure, Outcome};
use super::files;

/// What `login` keeps.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Session {
    /// Address of the service.
    pub url: String,
    /// CA certificates in PEM; absent: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Account.
    pub user: String,
    /// Public part of the token.
    #[serde(rename = "tokenID")]
    pub token_id: String,
    /// The token.
    pub token: String,
    /// When it ends (RFC 3339).
    pub expires_at: String,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("url", &self.url).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Session {
    /// Where it is kept: `$XDG_CONFIG_HOME/bailiwick/config.json`, below `~/.config` by default.
    pub fn path() -> Outcome<PathBuf> {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = match (set("XDG_CONFIG_HOME"), set("HOME")) {
            (Some(config), _) => config,
            (None, Some(home)) => home.join(".config"),
            (None, None) => return Err(Failure::Usage("neither XDG_CONFIG_HOME nor HOME is set".to_owned())),
        };
        Ok(base.join("bailiwick/config.json"))
    }

    /// Reads it; none is no error.
    pub fn load(path: &std::path::Path) -> Outcome<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = Zeroizing::new(files::read_text(path)?);
        serde_json::from_str(&text).map(Some).map_err(|e| {
            Failure::Usage(format!(
                "{}:{}: {e}; remove the file and run `bailiwick login` again",
                path.display(),
                e.line()
            ))
        })
    }

    /// Writes it for its owner only.
    pub fn save(&self, path: &std::path::Path) -> Outcome {
        let text = serde_json::to_string_pretty(self).map_err(|e| Failure::Failed(e.to_string()))?;
        files::write_private(path, &Zeroizing::new(text + "\n"))
    }

    /// The trust that goes with it.
    pub fn trust(&self) -> Trust {
        self.ca.clone().map_or(Trust::System, Trust::Only)
    }
}

/// The client for a command.
pub fn connect(options: &Connect) -> Outcome<Client> {
    let (base, trust, token) = choose(options, Session::load(&Session::path()?)?)?;
    Client::new(base, &trust, Some(&token))
}

/// Which server, trusted how, with which token.
fn choose(options: &Connect, session: Option<Session>) -> Outcome<(BaseUrl, Trust, Zeroizing<String>)> {
    let Connect { url, ca_file, token_file } = options;
    let asked = url.as_deref().map(BaseUrl::parse).transpose()?;
    let given = match ca_file {
        Some(file) => Some(Trust::Only(files::read_text(file)?)),
        None => None,
    };
    if let Some(file) = token_file {
        let base = match (&asked, &session) {
            (Some(asked), _) => asked.clone(),
            (None, Some(session)) => BaseUrl::parse(&session.url)?,
            (None, None) => {
                return Err(Failure::Usage("--token-file needs --url, the address of the service".to_owned()));
            }
        };
        let kept = session.filter(|s| s.url == base.as_str()).map(|s| s.trust());
        return Ok((base, given.or(kept).unwrap_or(Trust::System), files::read_secret(file)?));
    }
    let Some(session) = session else {
        let url = asked.as_ref().map_or("URL", |base| base.as_str());
        return Err(Failure::NotSignedIn(format!("not signed in; run `bailiwick login {url}`")));
    };
    let base = BaseUrl::parse(&session.url)?;
    if let Some(asked) = asked
        && asked != base
    {
        return Err(Failure::NotSignedIn(format!(
            "not signed in at {0}; the sign-in that is remembered is for {1}. Run `bailiwick login {0}`",
            asked.as_str(),
            base.as_str()
        )));
    }
    let trust = given.unwrap_or_else(|| session.trust());
    Ok((base, trust, Zeroizing::new(session.token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn session(url: &str) -> Session {
        Session {
            url: url.to_owned(),
            ca: Some("kept ca".to_owned()),
            user: "jane".to_owned(),
            token_id: "id".to_owned(),
            token: "bwk_id_secret".to_owned(),
            expires_at: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    #[test]
    fn it_is_kept_for_its_owner_only_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bailiwick/config.json");
        assert_eq!(Session::load(&path).unwrap(), None);
        session("https://x.example.com").save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Session::load(&path).unwrap(), Some(session("https://x.example.com")));
        fs::write(&path, "{\n\"url\": 1}").unwrap();
        let failure = Session::load(&path).unwrap_err();
        assert!(failure.to_string().contains("config.json:2:"), "{failure}");
    }

    #[test]
    fn a_token_goes_only_to_its_own_server() {
        let here = || Some(session("https://x.example.com"));
        let (base, trust, token) = choose(&Connect::default(), here()).unwrap();
        assert_eq!((base.as_str(), trust), ("https://x.example.com", Trust::Only("kept ca".to_owned())));
        assert_eq!(token.as_str(), "bwk_id_secret");
        let same = Connect { url: Some("https://X.example.com/".to_owned()), ..Connect::default() };
        assert!(choose(&same, here()).is_ok());
        let other = Connect { url: Some("https://y.example.com".to_owned()), ..Connect::default() };
        let failure = choose(&other, here()).unwrap_err();
        assert_eq!(failure.code(), 4);
        assert!(failure.to_string().contains("not signed in at https://y.example.com"), "{failure}");
        assert_eq!(choose(&Connect::default(), None).unwrap_err().code(), 4);
    }

    #[test]
    fn a_token_file_stands_in_for_the_sign_in() {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        fs::write(&token_file, "bwk_ci_secret\n").unwrap();
        let ca_file = dir.path().join("ca.pem");
        fs::write(&ca_file, "given ca").unwrap();
        let options = Connect {
            url: Some("https://y.example.com".to_owned()),
            ca_file: Some(ca_file),
            token_file: Some(token_file.clone()),
        };
        let (base, trust, token) = choose(&options, Some(session("https://x.example.com"))).unwrap();
        assert_eq!((base.as_str(), trust), ("https://y.example.com", Trust::Only("given ca".to_owned())));
        assert_eq!(token.as_str(), "bwk_ci_secret");
        let elsewhere = Connect { url: options.url.clone(), ca_file: None, token_file: Some(token_file.clone()) };
        let (_, trust, _) = choose(&elsewhere, Some(session("https://x.example.com"))).unwrap();
        assert_eq!(trust, Trust::System, "the CA of one server says nothing about another");
        let nowhere = Connect { token_file: Some(token_file), ..Connect::default() };
        assert_eq!(choose(&nowhere, None).unwrap_err().code(), 2);
    }

    #[test]
    fn it_never_shows_its_token() {
        assert!(!format!("{:?}", session("https://x.example.com")).contains("secret"));
    }
}
