//! Which path leads where.

use axum::Router;
use axum::extract::State;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::call::Call;
use super::openapi::Document;
use super::read::unknown_path;
use super::{Answer, ApiState, Failure, accept, acts, deletion, discovery, front, openapi, read, write};
use crate::status::Status;

/// Where the resources are.
pub(super) const BASE: &str = "/apis/bailiwick.dev/v1alpha1";

pub(super) fn router(state: ApiState) -> Router {
    let collection = get(read::list).post(write::create);
    let object = get(read::get).put(write::replace).patch(write::patch).delete(deletion::delete);
    Router::new()
        .route("/version", get(|| async { axum::Json(discovery::version()) }))
        .route("/healthz", get(healthz))
        .route("/api", get(core))
        .route("/apis", get(groups))
        .route("/apis/bailiwick.dev", get(|call: Call| async move { plain(&call, &discovery::group()) }))
        .route(BASE, get(|call: Call| async move { plain(&call, &discovery::resources()) }))
        .route("/openapi/v3", get(|call: Call| async move { document(&call.headers, openapi::index()) }))
        .route(
            "/openapi/v3/apis/bailiwick.dev/v1alpha1",
            get(|call: Call| async move { document(&call.headers, openapi::group()) }),
        )
        .route(&format!("{BASE}/{{resource}}"), collection)
        .route(&format!("{BASE}/{{resource}}/{{name}}"), object)
        .merge(acts::routes())
        .fallback(|_: Call| async { Failure(unknown_path()) })
        .method_not_allowed_fallback(|_: Call| async { Failure(write::method_not_allowed()) })
        .layer(middleware::from_fn_with_state(state.clone(), front::front))
        .with_state(state)
}

async fn healthz(State(state): State<ApiState>) -> Response {
    if state.0.parts.index.is_fresh() {
        "ok".into_response()
    } else {
        Failure(Status::unavailable("the store cannot be reached")).into_response()
    }
}

async fn core(call: Call) -> Answer {
    Ok(discovered(discovery::core(&call.headers)?))
}

async fn groups(call: Call) -> Answer {
    Ok(discovered(discovery::groups(&call.headers)?))
}

fn discovered((value, aggregated): (Value, bool)) -> Response {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut response = value.to_string().into_response();
    let media_type = HeaderValue::from_static(if aggregated { AGGREGATED } else { "application/json" });
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response.headers_mut().insert("vary", HeaderValue::from_static("Accept"));
    response
}

fn plain(call: &Call, value: &Value) -> Answer {
    let accepted = accept::negotiate(&call.headers, "")?;
    Ok(read::respond(StatusCode::OK, accepted, value)?)
}

/// A document that changes only with the program.
fn document(headers: &HeaderMap, document: &'static Document) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()).is_some_and(|known| known.contains(&tag));
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let accepted = accept::negotiate(headers, "");
        accepted.map_err(|_| accept::not_acceptable("application/json"))?;
        document.body.clone().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
