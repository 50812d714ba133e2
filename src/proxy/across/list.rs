//! Lists across namespaces: the first namespace says at which revision, and all are listed at exactly that one.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>

use bytes::Bytes;
use http::header::{self, HeaderValue};

use super::members::{Member, Members};
use super::merge::{self, Document, MergeError};
use super::query::{Match, Options, add, escape};
use super::spread::{Answer, Spread, Taken};
use super::tokens::{Place, Tokens};
use crate::proxy::past;
use crate::status::Status;

/// Most warnings that are passed on; the cluster says the same in each namespace.
const WARNINGS: usize = 10;

/// A list, to be written.
pub struct Listed {
    /// Its bytes.
    pub parts: Vec<Bytes>,
    /// `Warning` headers, each once.
    pub warnings: Vec<HeaderValue>,
    /// `Content-Type`, as the cluster said it.
    pub content_type: Option<HeaderValue>,
    /// Its revision, where revisions of this resource can be relied on.
    pub revision: Option<u64>,
    /// Whether it is the first page.
    pub first: bool,
    /// The memory that it takes.
    pub taken: Vec<Taken>,
}

/// Where pages are kept.
pub struct Pages<'a> {
    pub(super) tokens: &'a Tokens,
    /// Who asks for what, as tokens are bound to it.
    pub(super) question: &'a str,
}

/// Where a list begins.
struct Start {
    at: usize,
    exact: Option<String>,
    inner: Option<String>,
}

/// What a wave found: everything asked for, or that revisions of this resource mean nothing across namespaces.
enum Found {
    Page { documents: Vec<Document>, exact: String, next: Option<(usize, Option<String>)> },
    NotComparable,
}

/// Answers collected on the way.
#[derive(Default)]
struct Gathered {
    warnings: Vec<HeaderValue>,
    content_type: Option<HeaderValue>,
    taken: Vec<Taken>,
}

impl Gathered {
    fn take(&mut self, answer: Answer) -> Result<Document, Status> {
        for warning in answer.headers.get_all(header::WARNING) {
            if self.warnings.len() < WARNINGS && !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        if self.content_type.is_none() {
            self.content_type = answer.headers.get(header::CONTENT_TYPE).cloned();
        }
        self.taken.push(answer.taken);
        Document::cut(&answer.body).map_err(|why| unmergeable(&why))
    }
}

/// Lists.
pub async fn list(
    spread: &Spread<'_>,
    members: &Members,
    options: &Options,
    pages: &Pages<'_>,
) -> Result<Listed, Status> {
    let start = start(members, options, pages)?;
    let first = start.exact.is_none();
    let mut gathered = Gathered::default();
    let found = page(spread, &members.permitted, options, start, &mut gathered).await?;
    let (documents, revision, proceed) = match found {
        Found::Page { documents, exact, next } => {
            let proceed = match next {
                Some((at, inner)) => {
                    let namespace = members.permitted[at].namespace.clone();
                    let place = Place { revision: exact.clone(), set: members.set, namespace, inner };
                    let sealed = pages.tokens.seal(&place, pages.question);
                    sealed.ok_or_else(|| Status::internal("the continue token cannot be made"))?
                }
                None => String::new(),
            };
            (documents, exact, proceed)
        }
        Found::NotComparable if !first || options.matching == Some(Match::Exact) => {
            return Err(Status::expired("the resource's revisions changed; list again"));
        }
        Found::NotComparable => {
            gathered = Gathered::default();
            (plain(spread, &members.permitted, options, &mut gathered).await?, String::new(), String::new())
        }
    };
    let parts = merge::merged(&documents, &revision, &proceed).map_err(|why| unmergeable(&why))?;
    let Gathered { warnings, content_type, taken } = gathered;
    Ok(Listed { parts, warnings, content_type, revision: revision.parse().ok(), first, taken })
}

fn start(members: &Members, options: &Options, pages: &Pages<'_>) -> Result<Start, Status> {
    let Some(token) = &options.proceed else {
        let theirs = |from: u64| members.permitted.iter().all(|member| member.since.is_some_and(|since| from >= since));
        if options.revision_number().is_some_and(|from| !theirs(from)) {
            return Err(past::expired());
        }
        let exact = (options.matching == Some(Match::Exact)).then(|| options.revision.clone());
        return Ok(Start { at: 0, exact, inner: None });
    };
    // A foreign token would silently mean another range.
    let place =
        pages.tokens.open(token, pages.question).map_err(|why| Status::expired(format!("{why}; list again")))?;
    let at = members.permitted.iter().position(|member| member.namespace == place.namespace);
    match at {
        Some(at) if place.set == members.set => Ok(Start { at, exact: Some(place.revision), inner: place.inner }),
        _ => Err(Status::expired("your namespaces changed since the first page; list again")),
    }
}

async fn page(
    spread: &Spread<'_>,
    permitted: &[Member],
    options: &Options,
    start: Start,
    gathered: &mut Gathered,
) -> Result<Found, Status> {
    let Start { mut at, mut exact, mut inner } = start;
    let mut left = options.limit;
    let mut documents = vec![];
    while at < permitted.len() {
        // The revision comes from the first; nothing can be asked beside it.
        let width = if exact.is_none() { 1 } else { spread.at_a_time };
        let wave = &permitted[at..permitted.len().min(at + width)];
        let queries: Vec<String> =
            (0..wave.len()).map(|i| query(options, left, exact.as_deref(), inner.take_if(|_| i == 0))).collect();
        let answers = spread.answers(wave, &queries).await?;
        for (offset, answer) in answers.into_iter().enumerate() {
            let mut document = gathered.take(answer)?;
            match &exact {
                None if document.revision.parse::<u64>().is_err() => return Ok(Found::NotComparable),
                None => exact = Some(document.revision.clone()),
                Some(exact) if *exact != document.revision => return Ok(Found::NotComparable),
                Some(_) => {}
            }
            let Some(room) = &mut left else {
                if !document.proceed.is_empty() {
                    return Err(Status::bad_gateway("the cluster answered with a page where all was asked for"));
                }
                documents.push(document);
                continue;
            };
            if document.count > *room {
                // More than is left on this page: asked again for just that many, so that the cluster says where it
                // goes on.
                let query = query(options, Some(*room), exact.as_deref(), None);
                document = gathered.take(spread.answer(&wave[offset], &query).await?)?;
                if exact.as_ref() != Some(&document.revision) {
                    return Ok(Found::NotComparable);
                }
            }
            *room = room.saturating_sub(document.count);
            let (full, proceed) = (*room == 0, std::mem::take(&mut document.proceed));
            documents.push(document);
            let exact = exact.clone().unwrap_or_default();
            let here = at + offset;
            if !proceed.is_empty() {
                return Ok(Found::Page { documents, exact, next: Some((here, Some(proceed))) });
            }
            if full {
                let next = (here + 1 < permitted.len()).then_some((here + 1, None));
                return Ok(Found::Page { documents, exact, next });
            }
        }
        at += wave.len();
    }
    Ok(Found::Page { documents, exact: exact.unwrap_or_default(), next: None })
}

fn query(options: &Options, limit: Option<usize>, exact: Option<&str>, inner: Option<String>) -> String {
    let mut query = options.passed_query();
    if let Some(limit) = limit {
        add(&mut query, "limit", &limit.to_string());
    }
    match (inner, exact) {
        // The cluster's own token says the revision too.
        (Some(inner), _) => add(&mut query, "continue", &escape(&inner)),
        (None, Some(exact)) => {
            add(&mut query, "resourceVersion", exact);
            add(&mut query, "resourceVersionMatch", "Exact");
        }
        (None, None) if !options.revision.is_empty() => {
            add(&mut query, "resourceVersion", &options.revision);
            if options.matching.is_some() {
                add(&mut query, "resourceVersionMatch", "NotOlderThan");
            }
        }
        (None, None) => {}
    }
    query
}

/// Lists of a resource whose revisions cannot be compared (served by an aggregated API, without a revision): as they
/// are, without pages, and without a revision that a watch could go on from.
async fn plain(
    spread: &Spread<'_>,
    permitted: &[Member],
    options: &Options,
    gathered: &mut Gathered,
) -> Result<Vec<Document>, Status> {
    let queries = vec![options.passed_query(); permitted.len()];
    let answers = spread.answers(permitted, &queries).await?;
    let documents: Vec<Document> = answers.into_iter().map(|answer| gathered.take(answer)).collect::<Result<_, _>>()?;
    match documents.iter().all(|document| document.proceed.is_empty()) {
        true => Ok(documents),
        false => Err(Status::bad_gateway("the cluster answered with a page where all was asked for")),
    }
}

pub(super) fn unmergeable(why: &MergeError) -> Status {
    match why {
        MergeError::Columns => Status::unavailable(format!("{why}; list again")),
        why => Status::bad_gateway(why.to_string()),
    }
}
