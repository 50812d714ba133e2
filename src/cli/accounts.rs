//! `user` and `token`.

use http::Method;
use serde_json::{Value, json};

use super::args::{ScopeArgs, TokenArgs, TokenAudience, TokenCommand, UserArgs, UserCommand};
use super::client::{AS_TABLE, Client, resource_path};
use super::exit::{Failure, Outcome};
use super::kinds::KindInfo;
use super::output::{self, Format};
use super::{secrets, session};

/// `bailiwick user`.
pub async fn user(args: UserArgs) -> Outcome {
    let UserArgs { connect, command } = args;
    let client = session::connect(&connect)?;
    let act = |name: &str, act: &str| format!("{}/{act}", resource_path("users", Some(name)));
    match command {
        UserCommand::Suspend { name, reason } => {
            client.call(Method::POST, &act(&name, "suspend"), Some(&json!({"reason": reason}))).await?;
            output::line(&format!("user.bailiwick.dev/{name} suspended"))
        }
        UserCommand::Resume { name } => {
            client.call(Method::POST, &act(&name, "resume"), Some(&json!({}))).await?;
            output::line(&format!("user.bailiwick.dev/{name} resumed"))
        }
        UserCommand::SetPassword { name: Some(name), password_stdin, must_change } => {
            let password = if password_stdin {
                match secrets::lines()?.as_slice() {
                    [only] => only.clone(),
                    _ => {
                        return Err(Failure::Usage(
                            "standard input: one line is expected, the new password".to_owned(),
                        ));
                    }
                }
            } else {
                secrets::ask_new(&format!("New password of {name}"))?
            };
            let body = json!({"password": password.as_str(), "mustChange": must_change});
            client.call(Method::POST, &act(&name, "password"), Some(&body)).await?;
            output::line(&format!("user.bailiwick.dev/{name} has a new password"))
        }
        UserCommand::SetPassword { name: None, password_stdin, must_change: _ } => {
            let (old, new) = if password_stdin {
                match secrets::lines()?.as_slice() {
                    [old, new] => (old.clone(), new.clone()),
                    _ => {
                        let why = "standard input: two lines are expected, the present password and the new one";
                        return Err(Failure::Usage(why.to_owned()));
                    }
                }
            } else {
                (secrets::ask("Present password")?, secrets::ask_new("New password")?)
            };
            let body = json!({"oldPassword": old.as_str(), "password": new.as_str(), "mustChange": false});
            client.call(Method::POST, &act("me", "password"), Some(&body)).await?;
            output::complain("All your tokens are dead now, this sign-in too; run `bailiwick login` again.");
            output::line("Your password is changed")
        }
    }
}

/// `bailiwick token`.
pub async fn token(args: TokenArgs) -> Outcome {
    let TokenArgs { connect, command } = args;
    let client = session::connect(&connect)?;
    match command {
        TokenCommand::List { user, output } => list(&client, user.as_deref(), output).await,
        TokenCommand::Create { user, audience, scopes, description, output: format } => {
            let body = request(audience, scopes, &description);
            let path = resource_path("users", Some(user.as_deref().unwrap_or("me"))) + "/tokens";
            let answer = client.call(Method::POST, &path, Some(&body)).await?;
            let token = answer["token"].as_str();
            let token = token.ok_or_else(|| Failure::Failed("the server's answer holds no token".to_owned()))?;
            let resource = &answer["resource"];
            output::complain(&format!(
                "Token {} until {}; it is shown this once.",
                output::text(&resource["metadata"]["name"]),
                output::text(&resource["spec"]["expiresAt"]),
            ));
            output::structured(format, &answer, || format!("{token}\n"))
        }
        TokenCommand::Revoke { ids } => {
            for id in &ids {
                client.call(Method::DELETE, &resource_path("tokens", Some(id)), None).await?;
                output::line(&format!("token.bailiwick.dev/{id} revoked"))?;
            }
            Ok(())
        }
    }
}

fn request(audience: TokenAudience, scopes: ScopeArgs, description: &str) -> Value {
    let ScopeArgs { clusters, projects, read_only, expires } = scopes;
    let audience = match audience {
        TokenAudience::Kube => "kube",
        TokenAudience::Api => "api",
    };
    let mut limits = json!({"readOnly": read_only});
    for (key, values) in [("clusters", clusters), ("projects", projects)] {
        if !values.is_empty() {
            limits[key] = json!(values);
        }
    }
    let mut body = json!({"audience": audience, "scopes": limits, "description": description});
    if let Some(expires) = expires {
        body["expiresInSeconds"] = json!(expires.0.as_secs());
    }
    body
}

async fn list(client: &Client, user: Option<&str>, format: Format) -> Outcome {
    let path = resource_path("tokens", None);
    if format == Format::Table {
        let mut table = client.send(Method::GET, &path, AS_TABLE, None).await?.json()?;
        let headers = table["columnDefinitions"].as_array();
        let owner = headers.and_then(|all| all.iter().position(|column| column["name"] == "Owner"));
        if let (Some(user), Some(owner), Some(rows)) = (user, owner, table["rows"].as_array_mut()) {
            rows.retain(|row| row["cells"][owner] == user);
        }
        if table["rows"].as_array().is_none_or(Vec::is_empty) {
            output::complain("No tokens found");
            return Ok(());
        }
        return output::print(&output::server_table(&table));
    }
    let mut list = client.get(&path).await?;
    if let (Some(user), Some(items)) = (user, list["items"].as_array_mut()) {
        items.retain(|token| token["spec"]["owner"] == user);
    }
    let kind = KindInfo::find("token")?;
    output::structured(format, &list, || {
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|t| kind.qualified(&output::text(&t["metadata"]["name"])) + "\n").collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_limited_is_not_sent() {
        assert_eq!(
            request(TokenAudience::Api, ScopeArgs::default(), ""),
            json!({"audience": "api", "scopes": {"readOnly": false}, "description": ""})
        );
        let scopes = ScopeArgs {
            clusters: vec!["demo".into()],
            projects: vec!["shop".into()],
            read_only: true,
            expires: Some("1h".parse().unwrap()),
        };
        assert_eq!(
            request(TokenAudience::Kube, scopes, "ci"),
            json!({"audience": "kube", "description": "ci", "expiresInSeconds": 3600,
                "scopes": {"readOnly": true, "clusters": ["demo"], "projects": ["shop"]}})
        );
    }
}
