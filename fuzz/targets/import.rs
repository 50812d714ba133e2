//! Exports of Rancher: whatever they hold, what comes out passes our own validation, or nothing does.

use super::super::super::documents;
use super::{Document, Options, Refused, RoleStyle, translate};
use crate::fuzz;

const WORDS: &[&str] = &[
    "---\n",
    "- ",
    "apiVersion: management.cattle.io/v3\n",
    "kind: Project\n",
    "kind: User\n",
    "kind: RoleTemplate\n",
    "kind: ProjectRoleTemplateBinding\n",
    "metadata: {name: a}\n",
    "context: project\n",
    "rules:\n",
    "'*'",
    "null",
    "\"\"",
    "{}",
    "[]",
    "clusterName: c\n",
    "displayName: ",
    "projectName: c:p\n",
    "roleTemplateName: rt\n",
    "userName: u\n",
    "verbs: ['*']",
    "resourceNames: ['']",
    "\u{202e}",
    "\\n",
    "field.cattle.io/projectId: c:p",
    "limit: {pods: '1'}",
    "external: true\n",
];

#[test]
fn fuzz_imports() {
    fuzz::run("import", WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(objects) = documents::objects("fuzz", &text) else { return (vec![], String::new()) };
        let documents: Vec<Document> = objects.into_iter().map(|(place, value)| Document { place, value }).collect();
        let mut outcome = vec![];
        for roles in [RoleStyle::Exact, RoleStyle::BuiltIn] {
            match translate(documents.clone(), &Options { roles, ..Options::default() }) {
                Ok(translation) => {
                    let kinds = translation.resources.iter().map(|resource| resource.kind as usize);
                    outcome.extend(kinds.chain(translation.losses.iter().map(|loss| 10 + loss.what as usize)));
                }
                Err(Refused::Invalid(why)) => panic!("{why}"),
                Err(refused) => return (vec![], refused.to_string().chars().take(20).collect()),
            }
        }
        outcome.sort_unstable();
        outcome.dedup();
        (outcome, String::new())
    });
}
