//! Which representations can be put together, of those that a client accepts.
//!
//! Lists are merged as JSON: whole objects, their metadata, or Tables. Of what else a client accepts (protobuf, CBOR)
//! nothing is asked for; clients that accept nothing else get a 406.

use http::header::{self, HeaderMap, HeaderValue};

use crate::status::Status;

/// Parameters of JSON that do not change what it holds.
const HARMLESS: [(&str, &str); 2] = [("charset", "utf-8"), ("stream", "watch")];

/// What is asked of the cluster: the client's own choice, less what cannot be merged.
pub fn narrowed(headers: &HeaderMap) -> Result<HeaderValue, Status> {
    let mut ranges: Vec<(u16, String)> = vec![];
    let mut any = false;
    for line in headers.get_all(header::ACCEPT) {
        any = true;
        let line = line.to_str().map_err(|_| Status::bad_request("Accept is not ASCII"))?;
        ranges.extend(line.split(',').filter_map(range));
    }
    if !any {
        return Ok(HeaderValue::from_static("application/json"));
    }
    // As the client prefers, and in the client's order where it prefers nothing.
    ranges.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
    let joined = ranges.into_iter().map(|(_, range)| range).collect::<Vec<_>>().join(",");
    match HeaderValue::from_str(&joined) {
        Ok(value) if !joined.is_empty() => Ok(value),
        _ => Err(Status::new(
            http::StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "lists and watches across namespaces are answered as application/json: whole, as=Table or as=PartialObjectMetadata",
        )),
    }
}

/// A range of JSON in a plain form, with its quality in thousandths.
fn range(text: &str) -> Option<(u16, String)> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    if !matches!(media.as_str(), "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut form, mut version, mut group, mut quality) = (None, None, None, 1000);
    for parameter in parts.filter(|part| !part.is_empty()) {
        let (key, value) = parameter.split_once('=')?;
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        match key.as_str() {
            "as" => form = Some(value),
            "v" => version = Some(value),
            "g" => group = Some(value),
            "q" => quality = thousandths(value)?,
            _ if HARMLESS.contains(&(&*key, &*value.to_ascii_lowercase())) => {}
            _ => return None,
        }
    }
    if quality == 0 {
        return None;
    }
    let plain = "application/json".to_owned();
    match (form, version, group) {
        (None, None, None) => Some((quality, plain)),
        (
            Some(form @ ("Table" | "PartialObjectMetadataList" | "PartialObjectMetadata")),
            Some(version @ ("v1" | "v1beta1")),
            Some("meta.k8s.io"),
        ) => Some((quality, format!("{plain};as={form};v={version};g=meta.k8s.io"))),
        _ => None,
    }
}

fn thousandths(text: &str) -> Option<u16> {
    let quality: f32 = text.parse().ok()?;
    (0.0..=1.0).contains(&quality).then_some((quality * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> Result<String, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        narrowed(&headers).map(|value| value.to_str().unwrap().to_owned()).map_err(|status| status.code)
    }

    #[test]
    fn what_kubectl_and_clients_send_is_narrowed_to_json() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                       application/json";
        assert_eq!(asked(kubectl).unwrap(), kubectl);
        assert_eq!(asked("application/vnd.kubernetes.protobuf,application/json").unwrap(), "application/json");
        assert_eq!(
            asked("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json").unwrap(),
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
        );
        assert_eq!(asked("*/*").unwrap(), "application/json");
        assert_eq!(asked("application/json; charset=UTF-8").unwrap(), "application/json");
        assert_eq!(
            asked("application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io").unwrap(),
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        );
        assert_eq!(narrowed(&HeaderMap::new()).unwrap(), "application/json");
    }

    #[test]
    fn what_cannot_be_merged_is_not_asked_for() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/yaml",
            "text/html",
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
            "application/json;drop=metadata.managedFields",
            "application/json;q=0",
            "application/json;as=Table\u{9}",
            "",
        ] {
            assert_eq!(asked(accept), Err(406), "{accept}");
        }
    }
}
