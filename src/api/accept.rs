//! What a client can read: content negotiation as kubectl and client libraries do it.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::status::Status;

/// How objects are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// As they are.
    Object,
    /// As rows, with what of each object beside the cells.
    Table(Include),
    /// Metadata only.
    Partial,
}

/// What stands beside the cells of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// Metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// What a response is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Shape.
    pub(super) shape: Shape,
    /// YAML instead of JSON.
    pub(super) yaml: bool,
}

struct Offer<'a> {
    media_type: String,
    parameters: Vec<(String, &'a str)>,
    quality: f32,
}

/// All media ranges of `Accept`, the most wanted first.
fn offers(headers: &HeaderMap) -> Vec<Offer<'_>> {
    let mut offers = vec![];
    for header in headers.get_all(ACCEPT) {
        let Ok(header) = header.to_str() else { continue };
        for part in header.split(',').filter(|part| !part.trim().is_empty()) {
            let mut pieces = part.split(';').map(str::trim);
            let media_type = pieces.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> =
                pieces.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.to_ascii_lowercase(), v)).collect();
            let quality = parameters.iter().find(|(k, _)| k == "q").and_then(|(_, v)| v.parse().ok()).unwrap_or(1.0);
            offers.push(Offer { media_type, parameters, quality });
        }
    }
    offers.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    offers
}

impl Offer<'_> {
    fn parameter(&self, key: &str) -> &str {
        self.parameters.iter().find(|(k, _)| k == key).map(|(_, v)| *v).unwrap_or_default()
    }
}

/// Finds what suits the client best. `include` is the query parameter `includeObject`.
pub(super) fn negotiate(headers: &HeaderMap, include: &str) -> Result<Accepted, Status> {
    if !headers.contains_key(ACCEPT) {
        return Ok(Accepted { shape: Shape::Object, yaml: false });
    }
    let include = match include {
        "" | "Metadata" => Include::Metadata,
        "None" => Include::None,
        "Object" => Include::Object,
        other => {
            return Err(Status::bad_request(format!(
                "includeObject: expected None, Metadata or Object, got {other:?}"
            )));
        }
    };
    for offer in offers(headers).into_iter().filter(|offer| offer.quality > 0.0) {
        let yaml = match offer.media_type.as_str() {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" => true,
            _ => continue,
        };
        let ours = offer.parameter("g") == "meta.k8s.io" && offer.parameter("v") == "v1";
        let shape = match offer.parameter("as") {
            "" => Shape::Object,
            "Table" if ours => Shape::Table(include),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if ours => Shape::Partial,
            _ => continue,
        };
        return Ok(Accepted { shape, yaml });
    }
    Err(not_acceptable("application/json, application/yaml"))
}

/// Whether a client prefers aggregated discovery, and can read it.
pub(super) fn wants_aggregated_discovery(headers: &HeaderMap) -> Result<bool, Status> {
    if !headers.contains_key(ACCEPT) {
        return Ok(false);
    }
    for offer in offers(headers).into_iter().filter(|offer| offer.quality > 0.0) {
        if !matches!(offer.media_type.as_str(), "application/json" | "*/*" | "application/*") {
            continue;
        }
        match offer.parameter("as") {
            "" => return Ok(false),
            "APIGroupDiscoveryList"
                if offer.parameter("g") == "apidiscovery.k8s.io" && offer.parameter("v") == "v2" =>
            {
                return Ok(true);
            }
            _ => {}
        }
    }
    Err(not_acceptable("application/json"))
}

/// 406.
pub(super) fn not_acceptable(available: &str) -> Status {
    Status::new(
        http::StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("only the following media types are accepted: {available}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(accept: &str) -> Result<Accepted, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        negotiate(&headers, "").map_err(|status| status.code)
    }

    #[test]
    fn kubectl_gets_what_it_asks_for() {
        let get = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(ask(get).unwrap().shape, Shape::Table(Include::Metadata));
        assert_eq!(ask("application/json").unwrap().shape, Shape::Object);
        assert_eq!(ask("*/*").unwrap().shape, Shape::Object);
        assert!(ask("application/yaml").unwrap().yaml);
        let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(ask(partial).unwrap().shape, Shape::Partial);
        // A client that would rather have protobuf falls back to what it names next.
        assert_eq!(ask("application/vnd.kubernetes.protobuf,application/json").unwrap().shape, Shape::Object);
        assert!(ask("application/json;q=0.5,application/yaml;q=0.9").unwrap().yaml);
    }

    #[test]
    fn what_nobody_can_write_is_refused() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "text/html",
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            "application/json;q=0",
        ] {
            assert_eq!(ask(accept), Err(406), "{accept}");
        }
    }

    #[test]
    fn discovery() {
        let ask = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            wants_aggregated_discovery(&headers).map_err(|status| status.code)
        };
        assert_eq!(
            ask("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"),
            Ok(true)
        );
        assert_eq!(
            ask("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"),
            Ok(false)
        );
        assert_eq!(ask("application/json"), Ok(false));
        assert_eq!(ask("application/vnd.kubernetes.protobuf"), Err(406));
    }
}
