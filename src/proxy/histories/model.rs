//! What ought to be permitted, read off the documents as they were written.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ASKED, Asked, CLUSTER, CLUSTER_UID, ROLES, World, account};
use crate::clock::Source as _;
use crate::records::Claim;
use crate::store::Kind;

impl World {
    /// Whether a token may ask for this, read off the documents.
    pub(super) fn ought_to_pass(&self, token: &str, asked: &Asked) -> bool {
        let document = |kind: Kind, name: &str| self.documents.get(&(kind, name.to_owned()));
        let now = self.hands_now();
        let ended = |time: &Value| time.as_str().is_some_and(|end| now >= end.parse().unwrap());
        let check = || -> Option<bool> {
            document(Kind::Cluster, CLUSTER)?;
            let token = document(Kind::Token, token)?;
            let name = token["user"].as_str()?;
            let user = document(Kind::User, name)?;
            let uid = &user["metadata"]["uid"];
            let account = account(&self.documents, name).filter(|account| account["user_uid"] == *uid);
            let epoch = account.map_or(json!(0), |account| account["epoch"].clone());
            let suspended = account.is_some_and(|account| !account["suspended"].is_null());
            let alive = token["user_uid"] == *uid && token["epoch"] == epoch && !ended(&token["expires_at"]);
            if !alive || suspended || user["spec"]["disabled"] == true || !self.observed.usable {
                return None;
            }
            let claim = document(Kind::Claim, &Claim::key_name(CLUSTER, asked.namespace))?;
            let project = document(Kind::Project, claim["project"].as_str()?)?;
            let seen = self.observed.namespaces.get(asked.namespace)?;
            let owned = claim["project_uid"] == project["metadata"]["uid"]
                && claim["namespace_uid"] == json!(&**seen)
                && claim["releasing"] == false;
            let limits = token["scopes"]["projects"].as_array()?;
            let within = limits.is_empty() || limits.iter().any(|limit| limit["uid"] == project["metadata"]["uid"]);
            let narrowed = asked.narrowed.is_some_and(|narrowed| claim["project"] != narrowed);
            if !owned || !within || narrowed || (token["scopes"]["readOnly"] == true && ASKED[asked.at].0 != "GET") {
                return None;
            }
            let grants = self.documents.iter().filter(|((kind, _), _)| *kind == Kind::Grant).map(|(_, grant)| grant);
            Some(grants.into_iter().any(|grant| {
                let spec = &grant["spec"];
                let subject = spec["subject"]["name"].as_str().unwrap();
                let holds = if spec["subject"]["kind"] == "User" {
                    subject == name && grant["status"]["subjectUID"] == *uid
                } else {
                    document(Kind::Team, subject).is_some_and(|team| {
                        grant["status"]["subjectUID"] == team["metadata"]["uid"]
                            && team["spec"]["users"].as_array().unwrap().contains(&json!(name))
                            && team["status"]["memberUIDs"][name] == *uid
                    })
                };
                let role = spec["role"].as_str().unwrap();
                let built_in = ROLES[..3].contains(&role);
                let reaches = if spec["target"]["kind"] == "Cluster" {
                    built_in && grant["status"]["targetUID"] == CLUSTER_UID
                } else {
                    let namespaces = spec["namespaces"].as_array().unwrap();
                    let uses = project["spec"]["roles"].as_array().unwrap().contains(&json!(role));
                    spec["target"]["name"] == claim["project"]
                        && grant["status"]["targetUID"] == project["metadata"]["uid"]
                        && (built_in || uses)
                        && (namespaces.is_empty() || namespaces.contains(&json!(asked.namespace)))
                };
                let gives = self.gives(role, &mut vec![]).unwrap_or_default();
                holds && reaches && !ended(&spec["expiresAt"]) && gives.contains(&asked.at)
            }))
        };
        check().unwrap_or(false)
    }

    /// What a role gives in the end; nothing where any link is broken or leads back.
    fn gives(&self, role: &str, path: &mut Vec<String>) -> Option<BTreeSet<usize>> {
        match role {
            "viewer" => return Some(BTreeSet::from([0])),
            "member" | "owner" => return Some((0..ASKED.len()).collect()),
            _ => {}
        }
        if path.iter().any(|on| on == role) {
            return None;
        }
        let spec = &self.documents.get(&(Kind::AccessRole, role.to_owned()))?["spec"];
        path.push(role.to_owned());
        let mut all = BTreeSet::new();
        if spec["base"] == "view" {
            all.insert(0);
        }
        for rule in spec["rules"].as_array().unwrap() {
            all.extend(
                (0..ASKED.len())
                    .filter(|at| rule["verbs"] == json!([ASKED[*at].1]) && rule["resources"] == json!([ASKED[*at].2])),
            );
        }
        for inherited in spec["inherits"].as_array().unwrap() {
            all.extend(self.gives(inherited.as_str().unwrap(), path)?);
        }
        path.pop();
        Some(all)
    }

    pub(super) fn hands_now(&self) -> Timestamp {
        self.hands.wall()
    }
}
