//! Credentials of clusters from files, so that a platform is rebuilt from Git and a manager of secrets without a hand.
//!
//! Who writes a Cluster names a file, and where its tokens are sent to. So that nobody reads the host through this: only
//! plain names in the one directory that the configuration gives, and a file says itself which connection it is for.

use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;
use zeroize::Zeroizing;

use super::endpoint::digest;
use crate::records::ClusterCredential;
use crate::resources::cluster::{DirectConnection, is_file_name};

/// Longest file: a CA bundle of 64 KiB, two tokens of 16 KiB, escapes.
const MAX_BYTES: u64 = 256 * 1024;
/// Longest token of a cluster that is kept; Kubernetes' own have about 1 KiB.
const MAX_TOKEN: usize = 16 * 1024;

/// The file's content, JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Content {
    server: String,
    certificate_authority: String,
    #[serde(default)]
    tls_server_name: Option<String>,
    #[serde(rename = "kubeSystemUID")]
    kube_system_uid: String,
    forwarding: Zeroizing<String>,
    housekeeping: Zeroizing<String>,
}

/// Why a file gives no credential. Nothing of its content is told: it may be any file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The configuration gives no directory.
    #[error("the service's configuration names no credential_dir; credentials are not taken from files")]
    NoDirectory,
    /// The directory or the file cannot be read.
    #[error("{file:?} in credential_dir cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        why: io::ErrorKind,
    },
    /// The name is a path, or a link leads out of the directory, or it is no file.
    #[error("{0:?} is not a regular file inside credential_dir")]
    Outside(String),
    /// Too long.
    #[error("{0:?} in credential_dir is longer than 256 KiB")]
    TooLong(String),
    /// Not the JSON that it must be.
    #[error(
        "{file:?} in credential_dir is not a JSON object of server, certificateAuthority, kubeSystemUID, forwarding, \
         housekeeping and, where it is needed, tlsServerName (line {line}, column {column})"
    )]
    Malformed {
        /// The file.
        file: String,
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// A field that cannot be.
    #[error("{file:?} in credential_dir: {field} {why}")]
    Field {
        /// The file.
        file: String,
        /// Which.
        field: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// It is for another connection.
    #[error(
        "{file:?} in credential_dir is for another {field} than spec.connection.direct names; its tokens are sent \
         nowhere else"
    )]
    Elsewhere {
        /// The file.
        file: String,
        /// In what they differ.
        field: &'static str,
    },
}

impl FileError {
    /// Reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoDirectory => "NoDirectory",
            Self::Unreadable { .. } => "Unreadable",
            Self::Outside(_) | Self::TooLong(_) => "NotAccepted",
            Self::Malformed { .. } | Self::Field { .. } => "Malformed",
            Self::Elsewhere { .. } => "ForAnotherAddress",
        }
    }
}

/// Reads the file `name` in `directory` for a Cluster with this UID and connection. Blocks.
pub fn read(
    directory: Option<&Path>,
    name: &str,
    uid: &str,
    direct: &DirectConnection,
) -> Result<ClusterCredential, FileError> {
    let directory = directory.ok_or(FileError::NoDirectory)?;
    let file = || name.to_owned();
    if !is_file_name(name) {
        return Err(FileError::Outside(file()));
    }
    let text = read_inside(directory, name)?;
    let content: Content = serde_json::from_slice(&text).map_err(|why| FileError::Malformed {
        file: file(),
        line: why.line(),
        column: why.column(),
    })?;
    let Content { server, certificate_authority, tls_server_name, kube_system_uid, forwarding, housekeeping } = content;
    let field = |field, why| FileError::Field { file: file(), field, why };
    for (name, token) in [("forwarding", &forwarding), ("housekeeping", &housekeeping)] {
        if !is_token(token) {
            return Err(field(name, "must be a bearer token"));
        }
    }
    if *forwarding == *housekeeping {
        return Err(field("housekeeping", "must not be the token of the forwarding account"));
    }
    if kube_system_uid.is_empty() {
        return Err(field("kubeSystemUID", "must be the UID of the namespace kube-system"));
    }
    for (field, same) in [
        ("server", server == direct.server),
        // Line ends at the end of the file are no other certificate.
        ("certificateAuthority", certificate_authority.trim_end() == direct.certificate_authority.trim_end()),
        ("tlsServerName", tls_server_name == direct.tls_server_name),
    ] {
        if !same {
            return Err(FileError::Elsewhere { file: file(), field });
        }
    }
    Ok(ClusterCredential {
        cluster_uid: uid.to_owned(),
        endpoint_digest: digest(direct),
        kube_system_uid,
        forwarding: forwarding.to_string(),
        housekeeping: housekeeping.to_string(),
    })
}

/// Whether a text can be a bearer token of a cluster.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TOKEN && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Links within the directory are followed: mounted Secrets are made of them.
fn read_inside(directory: &Path, name: &str) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let unreadable = |why: io::Error| FileError::Unreadable { file: name.to_owned(), why: why.kind() };
    let outside = || FileError::Outside(name.to_owned());
    let directory = directory.canonicalize().map_err(unreadable)?;
    let path = directory.join(name).canonicalize().map_err(unreadable)?;
    // Looked at before it is opened, too: opening a pipe would wait for its writer.
    if !path.starts_with(&directory) || !path.symlink_metadata().map_err(unreadable)?.is_file() {
        return Err(outside());
    }
    let file = std::fs::File::open(&path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(outside());
    }
    // Filled within its capacity: growing would leave copies of the secrets behind.
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_BYTES as usize + 1));
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(FileError::TooLong(name.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::*;

    fn direct() -> DirectConnection {
        DirectConnection {
            server: "https://kube.example.com:6443".into(),
            certificate_authority: "the CA\n".into(),
            tls_server_name: None,
            credential_from: None,
        }
    }

    fn content() -> Value {
        json!({"server": "https://kube.example.com:6443", "certificateAuthority": "the CA", "kubeSystemUID": "k-1",
            "forwarding": "f-token", "housekeeping": "h-token"})
    }

    fn put(directory: &Path, name: &str, text: impl ToString) {
        std::fs::write(directory.join(name), text.to_string()).unwrap();
    }

    #[test]
    fn a_file_gives_the_credential_for_its_connection_only() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "demo.json", content());
        let read = |direct: &DirectConnection| read(Some(folder.path()), "demo.json", "u-1", direct);
        let given = read(&direct()).unwrap();
        assert_eq!((given.forwarding.as_str(), given.housekeeping.as_str()), ("f-token", "h-token"));
        assert_eq!((given.cluster_uid.as_str(), given.kube_system_uid.as_str()), ("u-1", "k-1"));
        assert_eq!(given.endpoint_digest, digest(&direct()));
        let elsewhere = |change: fn(&mut DirectConnection)| {
            let mut other = direct();
            change(&mut other);
            match read(&other).unwrap_err() {
                FileError::Elsewhere { field, .. } => field,
                why => panic!("{why}"),
            }
        };
        assert_eq!(elsewhere(|d| d.server = "https://collector.example.com".into()), "server");
        assert_eq!(elsewhere(|d| d.certificate_authority = "another".into()), "certificateAuthority");
        assert_eq!(elsewhere(|d| d.tls_server_name = Some("other.example.com".into())), "tlsServerName");
    }

    #[test]
    fn nothing_else_of_the_host_is_read() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("credentials");
        std::fs::create_dir_all(inner.join("..data")).unwrap();
        put(outer.path(), "secret.json", content());
        put(&inner.join("..data"), "mounted", content());
        symlink("../secret.json", inner.join("escape")).unwrap();
        symlink(outer.path().join("secret.json"), inner.join("absolute")).unwrap();
        symlink("..data/mounted", inner.join("mounted")).unwrap();
        std::fs::create_dir(inner.join("folder")).unwrap();
        put(&inner, "long", "x".repeat(MAX_BYTES as usize + 1));
        let read = |name: &str| read(Some(&inner), name, "u-1", &direct());
        assert!(read("mounted").is_ok(), "as Secrets are mounted");
        for name in ["escape", "absolute", "folder", "../secret.json", "/etc/passwd", "..data/mounted", "..", ".", ""] {
            assert_eq!(read(name).unwrap_err(), FileError::Outside(name.into()), "{name}");
        }
        assert_eq!(read("long").unwrap_err(), FileError::TooLong("long".into()));
        assert_eq!(read("absent").unwrap_err().reason(), "Unreadable");
        assert_eq!(super::read(None, "mounted", "u-1", &direct()).unwrap_err(), FileError::NoDirectory);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let with = |key: &str, value: &str| {
            let mut content = content();
            content[key] = json!(value);
            content.to_string()
        };
        for (text, says) in [
            ("root:x:0:0".to_owned(), "line 1, column 1"),
            (r#"{"root-s3cret": 1}"#.to_owned(), "line 1"),
            (r#"{"server": "s3cret"}"#.to_owned(), "line 1"),
            (with("forwarding", "two words s3cret"), "forwarding must be a bearer token"),
            (with("housekeeping", "f-token"), "housekeeping must not be"),
            (with("kubeSystemUID", ""), "kubeSystemUID must be"),
            (with("server", "https://s3cret.example.com"), "another server"),
        ] {
            put(folder.path(), "f", &text);
            let why = read(Some(folder.path()), "f", "u-1", &direct()).unwrap_err().to_string();
            assert!(why.contains(says) && why.contains("\"f\" in credential_dir"), "{text}: {why}");
            assert!(!why.contains("s3cret") && !why.contains("root") && !why.contains("f-token"), "{why}");
        }
    }
}
