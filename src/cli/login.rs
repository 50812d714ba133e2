//! `login`, `logout`, `whoami`.

use http::Method;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::args::{Connect, LoginArgs, LogoutArgs, WhoamiArgs};
use super::client::{BaseUrl, Client, Trust, resource_path};
use super::exit::{Failure, Outcome};
use super::session::{self, Session};
use super::{files, kubeconfig, output, secrets};

/// Reason of the answer to a right password that must be changed.
const MUST_CHANGE: &str = "PasswordChangeRequired";

/// `bailiwick login`.
pub async fn login(args: LoginArgs) -> Outcome {
    let LoginArgs { url, ca_file, username, password_stdin, no_kubeconfig } = args;
    let base = BaseUrl::parse(&url)?;
    let ca = ca_file.as_deref().map(files::read_text).transpose()?;
    let trust = ca.clone().map_or(Trust::System, Trust::Only);
    let client = Client::new(base.clone(), &trust, None)?;
    // Whether this is the right server is settled before a password is asked for.
    client.get("/version").await?;
    let user = match username {
        Some(user) => user,
        None => secrets::ask_name("Username")?,
    };
    let (password, new) = if password_stdin {
        let mut lines = secrets::lines()?.into_iter();
        (lines.next().unwrap_or_default(), lines.next())
    } else {
        (secrets::ask(&format!("Password of {user} at {}", base.authority()))?, None)
    };
    let answer = match sign_in(&client, &user, &password, None).await {
        Err(Failure::Server(status)) if status.reason == MUST_CHANGE => {
            let new = match new {
                Some(new) => new,
                None if password_stdin => {
                    return Err(Failure::Failed(
                        "the password must be changed: give the new one as the second line of standard input"
                            .to_owned(),
                    ));
                }
                None => {
                    output::complain("The password must be changed before it can be used.");
                    secrets::ask_new("New password")?
                }
            };
            sign_in(&client, &user, &password, Some(&new)).await?
        }
        other => other?,
    };
    let session = remember(&base, ca, &answer)?;
    session.save(&Session::path()?)?;
    output::complain(&format!("Signed in to {} as {} until {}.", session.url, session.user, session.expires_at));
    if !no_kubeconfig {
        let path = kubeconfig::default_path()?;
        kubeconfig::add_own(&path, &session)?;
        output::complain(&format!("Context \"bailiwick\" is in {}.", path.display()));
    }
    Ok(())
}

async fn sign_in(
    client: &Client,
    user: &str,
    password: &Zeroizing<String>,
    new: Option<&Zeroizing<String>>,
) -> Outcome<Value> {
    let mut body = json!({"username": user, "password": password.as_str()});
    if let Some(new) = new {
        body["newPassword"] = json!(new.as_str());
    }
    match client.call(Method::POST, "/auth/login", Some(&body)).await {
        Err(Failure::Server(status)) if status.code == 401 => {
            Err(Failure::NotSignedIn("user name or password is wrong, or the account may not sign in".to_owned()))
        }
        other => other,
    }
}

fn remember(base: &BaseUrl, ca: Option<String>, answer: &Value) -> Outcome<Session> {
    let field = |name: &str| {
        let text = answer[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text.ok_or_else(|| Failure::Failed(format!("the server's answer to the sign-in has no {name}")))
    };
    Ok(Session {
        url: base.as_str().to_owned(),
        ca,
        user: field("user")?,
        token_id: field("tokenID")?,
        token: field("token")?,
        expires_at: field("expiresAt")?,
    })
}

/// `bailiwick logout`. What is kept here is forgotten even where the server cannot be told.
pub async fn logout(args: LogoutArgs) -> Outcome {
    let LogoutArgs { no_kubeconfig } = args;
    let path = Session::path()?;
    let Some(session) = Session::load(&path)? else {
        output::complain("Not signed in.");
        return Ok(());
    };
    let told = match session::connect(&Connect::default()) {
        Ok(client) => client.call(Method::POST, "/auth/logout", Some(&json!({}))).await,
        Err(failure) => Err(failure),
    };
    std::fs::remove_file(&path).map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))?;
    if !no_kubeconfig {
        kubeconfig::remove_own(&kubeconfig::default_path()?, &session)?;
    }
    match told {
        // A token that is dead already is what was wanted.
        Err(failure) if !failure.is_status(401) => {
            output::complain(&format!(
                "The sign-in is forgotten here, but the server was not told; its token ends at {}.",
                session.expires_at
            ));
            Err(failure)
        }
        _ => {
            output::complain(&format!("Signed out of {}.", session.url));
            Ok(())
        }
    }
}

/// `bailiwick whoami`.
pub async fn whoami(args: WhoamiArgs) -> Outcome {
    let WhoamiArgs { connect, output: format } = args;
    let client = session::connect(&connect)?;
    let me = client.get(&resource_path("self", None)).await?;
    output::structured(format, &me, || match format {
        output::Format::Name => format!("{}\n", output::text(&me["user"])),
        _ => describe(&me, client.base()),
    })
}

fn describe(me: &Value, base: &BaseUrl) -> String {
    let mut text = format!("User:            {}\nServer:          {}\n", output::text(&me["user"]), base.as_str());
    text.push_str(&format!("Teams:           {}\n", output::text(&me["teams"])));
    text.push_str(&format!("Platform roles:  {}\n", output::text(&me["platformRoles"])));
    let mut rows = Vec::new();
    for project in me["projects"].as_array().into_iter().flatten() {
        for cluster in project["clusters"].as_array().into_iter().flatten() {
            rows.push(
                [&project["name"], &project["roles"], &cluster["name"], &cluster["namespaces"], &cluster["prefix"]]
                    .map(output::text)
                    .to_vec(),
            );
        }
    }
    if !rows.is_empty() {
        let headers = ["Project", "Roles", "Cluster", "Namespaces", "Prefix"].map(str::to_owned);
        text.push('\n');
        text.push_str(&output::table(&headers, &rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, status};

    async fn signed_in(answer: (u16, Value), new: Option<&str>) -> (Outcome<Value>, Value) {
        let fake = Fake::start(move |_| answer.clone()).await;
        let new = new.map(|new| Zeroizing::new(new.to_owned()));
        let outcome = sign_in(&fake.client, "jane", &Zeroizing::new("old".to_owned()), new.as_ref()).await;
        assert_eq!(fake.asked(), ["POST /auth/login"]);
        (outcome, fake.last_body())
    }

    #[tokio::test]
    async fn a_new_password_is_sent_only_where_it_is_asked_for() {
        let (outcome, body) = signed_in((200, json!({"token": "bwk_a_b"})), None).await;
        assert_eq!(outcome.unwrap()["token"], "bwk_a_b");
        assert_eq!(body, json!({"username": "jane", "password": "old"}));
        let (_, body) = signed_in((200, json!({})), Some("new")).await;
        assert_eq!(body["newPassword"], "new");
    }

    #[tokio::test]
    async fn refusals_are_told_apart() {
        let (outcome, _) = signed_in(status(401, "Unauthorized", "Unauthorized"), None).await;
        let failure = outcome.unwrap_err();
        assert_eq!(failure.code(), 4);
        assert!(failure.to_string().contains("user name or password is wrong"), "{failure}");
        let (outcome, _) = signed_in(status(403, MUST_CHANGE, "change it"), None).await;
        assert!(matches!(outcome, Err(Failure::Server(status)) if status.reason == MUST_CHANGE));
        let (outcome, _) = signed_in(status(429, "TooManyRequests", "slow down"), None).await;
        assert_eq!(outcome.unwrap_err().code(), 1);
    }

    #[test]
    fn an_answer_without_its_parts_is_no_sign_in() {
        let base = BaseUrl::parse("https://x.example.com").unwrap();
        let whole = json!({"token": "bwk_a_b", "tokenID": "a", "user": "jane", "expiresAt": "2026-01-01T00:00:00Z"});
        assert_eq!(remember(&base, None, &whole).unwrap().user, "jane");
        for part in ["token", "tokenID", "user", "expiresAt"] {
            let mut less = whole.clone();
            less[part] = json!("");
            let failure = remember(&base, None, &less).unwrap_err();
            assert!(failure.to_string().contains(part), "{failure}");
            assert!(!failure.to_string().contains("bwk_a_b"));
        }
    }

    #[test]
    fn who_one_is_in_a_glance() {
        let me = json!({"user": "floater", "uid": "u", "teams": ["billing"], "platformRoles": [], "clusters": ["demo"],
            "projects": [{"name": "shop", "uid": "s", "roles": ["viewer"],
                "clusters": [{"name": "demo", "namespaces": ["shop-web", "shop-data"], "prefix": "shop-"}]}]});
        let text = describe(&me, &BaseUrl::parse("https://x.example.com").unwrap());
        assert!(text.contains("User:            floater\n"), "{text}");
        assert!(text.contains("Platform roles:  <none>\n"), "{text}");
        assert!(text.contains("shop      viewer   demo      shop-web,shop-data   shop-\n"), "{text}");
    }
}
