//! Self reviews in Kubernetes' protobuf: the few fields that a decision needs, walked on the wire.
//!
//! Envelope and field numbers are those of `runtime.Unknown` (k8s.io/apimachinery/pkg/runtime/generated.proto) and of
//! k8s.io/api/authorization/v1/generated.proto. Whatever could be read in two ways is refused: a field that comes twice,
//! a wrong wire type, bytes left over.

use super::{AccessReview, AccessSpec, NonResourceAttributes, ResourceAttributes, RulesReview, RulesSpec};

/// First bytes of every protobuf document of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// Reads a `SelfSubjectAccessReview`.
pub(super) fn access(body: &[u8]) -> Result<AccessReview, String> {
    let spec = spec(body, "SelfSubjectAccessReview")?;
    let mut read = AccessSpec::default();
    for (number, value) in fields(spec)? {
        match number {
            1 => read.resource_attributes = Some(resource(value)?),
            2 => {
                let mut attributes = NonResourceAttributes::default();
                for (number, value) in fields(value)? {
                    match number {
                        1 => attributes.path = text(value)?,
                        2 => attributes.verb = text(value)?,
                        _ => {}
                    }
                }
                read.non_resource_attributes = Some(attributes);
            }
            _ => {}
        }
    }
    Ok(AccessReview { spec: read })
}

fn resource(bytes: &[u8]) -> Result<ResourceAttributes, String> {
    let mut attributes = ResourceAttributes::default();
    for (number, value) in fields(bytes)? {
        let slot = match number {
            1 => &mut attributes.namespace,
            2 => &mut attributes.verb,
            3 => &mut attributes.group,
            4 => &mut attributes.version,
            5 => &mut attributes.resource,
            6 => &mut attributes.subresource,
            7 => &mut attributes.name,
            // Selectors, which no rule of ours looks at.
            _ => continue,
        };
        *slot = text(value)?;
    }
    Ok(attributes)
}

/// Reads a `SelfSubjectRulesReview`.
pub(super) fn rules(body: &[u8]) -> Result<RulesReview, String> {
    let spec = spec(body, "SelfSubjectRulesReview")?;
    let mut read = RulesSpec::default();
    for (number, value) in fields(spec)? {
        if number == 1 {
            read.namespace = text(value)?;
        }
    }
    Ok(RulesReview { spec: read })
}

/// The bytes of `spec` inside the envelope, whose kind must be the one asked for.
fn spec<'a>(body: &'a [u8], kind: &str) -> Result<&'a [u8], String> {
    Ok(fields(document(body, kind)?)?.into_iter().find(|(number, _)| *number == 2).map_or(&[], |(_, value)| value))
}

/// The object inside the envelope, whose kind must be the one asked for.
pub(in crate::proxy) fn document<'a>(body: &'a [u8], kind: &str) -> Result<&'a [u8], String> {
    let unknown = body.strip_prefix(MAGIC).ok_or("it is no protobuf of Kubernetes")?;
    let mut raw: &[u8] = &[];
    for (number, value) in fields(unknown)? {
        match number {
            1 => {
                let named = fields(value)?.into_iter().find(|(number, _)| *number == 2);
                if named.map(|(_, value)| value) != Some(kind.as_bytes()) {
                    return Err(format!("it is no {kind}"));
                }
            }
            2 => raw = value,
            3 if !value.is_empty() => return Err("it is encoded once more".to_owned()),
            _ => {}
        }
    }
    Ok(raw)
}

/// The length-delimited fields of a message, each at most once. Reviews have no others that matter; numbers are skipped.
pub(in crate::proxy) fn fields(bytes: &[u8]) -> Result<Vec<(u64, &[u8])>, String> {
    let mut found: Vec<(u64, &[u8])> = vec![];
    for (number, value) in repeated(bytes)? {
        if found.iter().any(|(seen, _)| *seen == number) {
            return Err(format!("field {number} comes twice"));
        }
        found.push((number, value));
    }
    Ok(found)
}

/// As [`fields`], each as often as it comes.
pub(in crate::proxy) fn repeated(mut bytes: &[u8]) -> Result<Vec<(u64, &[u8])>, String> {
    let mut found: Vec<(u64, &[u8])> = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let (number, wire) = (key >> 3, key & 7);
        match wire {
            0 => {
                varint(&mut bytes)?;
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| "a length is too large")?;
                let value = bytes.get(..length).ok_or("it ends within a field")?;
                bytes = &bytes[length..];
                found.push((number, value));
            }
            _ => return Err(format!("field {number} has the unexpected wire type {wire}")),
        }
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("it ends within a number")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long".to_owned())
}

pub(in crate::proxy) fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(value.len()).unwrap()];
        out.extend_from_slice(value);
        out
    }

    fn document(kind: &str, spec: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"authorization.k8s.io/v1"), field(2, kind.as_bytes())].concat();
        let raw = [field(1, b""), field(2, spec)].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, &raw), field(3, b""), field(4, b"")].concat()
    }

    #[test]
    fn reads_what_kubectl_sends() {
        let attributes = [field(1, b"shop"), field(2, b"create"), field(5, b"pods"), field(6, b"exec")].concat();
        let read = access(&document("SelfSubjectAccessReview", &field(1, &attributes))).unwrap();
        let asked = read.spec.resource_attributes.unwrap();
        assert_eq!((asked.namespace.as_str(), asked.verb.as_str()), ("shop", "create"));
        assert_eq!((asked.resource.as_str(), asked.subresource.as_str(), asked.group.as_str()), ("pods", "exec", ""));
        let read = rules(&document("SelfSubjectRulesReview", &field(1, b"shop"))).unwrap();
        assert_eq!(read.spec.namespace, "shop");
    }

    #[test]
    fn refuses_what_could_be_read_in_two_ways() {
        let twice = [field(1, b"shop"), field(1, b"billing")].concat();
        for body in [
            b"{}".to_vec(),
            MAGIC[..3].to_vec(),
            document("SelfSubjectReview", &field(1, b"shop")),
            document("SelfSubjectRulesReview", &twice),
            document("SelfSubjectRulesReview", &[0x0a, 0x7f]),
            document("SelfSubjectRulesReview", &[0x09, 0, 0, 0, 0, 0, 0, 0, 0]),
            document("SelfSubjectRulesReview", &[0xff; 11]),
            document("SelfSubjectRulesReview", &field(1, &[0xff, 0xfe])),
        ] {
            assert!(rules(&body).is_err(), "{body:?}");
        }
    }
}
