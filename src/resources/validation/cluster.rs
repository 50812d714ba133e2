//! `Cluster`.

use std::net::{IpAddr, Ipv6Addr};

use x509_parser::pem::Pem;

use super::{Causes, text};
use crate::domain::rbac::BUILT_IN_GROUPS;
use crate::resources::ClusterSpec;
use crate::resources::cluster::{Connection, CredentialSource, DirectConnection, VersionRange, is_file_name};

/// API groups that decide over the whole cluster; no tenant ever reaches them, whatever a role says.
pub(super) const UNREACHABLE_GROUPS: [&str; 7] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "bailiwick.dev",
];
const MAX_GROUPS: usize = 200;
const MAX_CA_BYTES: usize = 64 * 1024;
const MAX_CERTIFICATES: usize = 50;
/// The oldest minor version that a range starts from where it does not say otherwise.
const OLDEST_DEFAULT: (u32, u32) = (1, 30);

/// Checks the spec of a cluster.
pub fn validate_cluster(spec: &ClusterSpec, causes: &mut Causes) {
    let ClusterSpec { display_name, connection, accepted_versions, tenant_api_groups } = spec;
    text::line("spec.displayName", display_name.as_deref(), text::MAX_DISPLAY, causes);
    let Connection { direct } = connection;
    match direct {
        Some(direct) => check_direct(direct, causes),
        None => causes.required("spec.connection", "exactly one of its members must be given: direct"),
    }
    if let Some(range) = accepted_versions {
        check_versions(range, causes);
    }
    if causes.bounded("spec.tenantAPIGroups", tenant_api_groups.len(), MAX_GROUPS) {
        for (at, group) in tenant_api_groups.iter().enumerate() {
            check_group(&format!("spec.tenantAPIGroups[{at}]"), group, causes);
        }
        text::distinct("spec.tenantAPIGroups", tenant_api_groups.iter().map(String::as_str), causes);
    }
}

fn check_direct(direct: &DirectConnection, causes: &mut Causes) {
    let DirectConnection { server, certificate_authority, tls_server_name, credential_from } = direct;
    if let Err(message) = check_server(server) {
        causes.invalid("spec.connection.direct.server", message);
    }
    if let Err(message) = check_authority(certificate_authority) {
        causes.invalid("spec.connection.direct.certificateAuthority", message);
    }
    if let Some(name) = tls_server_name
        && !is_host_name(name)
        && name.parse::<IpAddr>().is_err()
    {
        causes.invalid("spec.connection.direct.tlsServerName", "must be a DNS name or an IP address");
    }
    if let Some(CredentialSource { file }) = credential_from
        && !is_file_name(file)
    {
        causes.invalid(
            "spec.connection.direct.credentialFrom.file",
            "must be the plain name of a file in credential_dir: letters, digits, '-', '.', '_', beginning with a \
             letter or digit",
        );
    }
}

/// `https://host` or `https://host:port`, byte for byte: nothing that two parsers could read differently.
fn check_server(server: &str) -> Result<(), String> {
    const FORM: &str = "must be https://host:port, without path, query or user";
    let authority = server.strip_prefix("https://").ok_or(FORM)?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(FORM)?;
            address.parse::<Ipv6Addr>().map_err(|_| FORM)?;
            (address, port)
        }
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    if !port.is_empty() {
        let digits = port.strip_prefix(':').ok_or(FORM)?;
        let legal = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if !legal || !digits.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err("the port must be a number from 1 to 65535".to_owned());
        }
    }
    match host.parse::<IpAddr>() {
        Ok(address) if is_no_server(address) => {
            Err(format!("{address} is an address at which no API server can be (unspecified, link-local or multicast)"))
        }
        Ok(_) => Ok(()),
        Err(_) if is_host_name(host) => Ok(()),
        Err(_) => Err(FORM.to_owned()),
    }
}

/// Link-local addresses are where clouds serve credentials to whoever asks.
fn is_no_server(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    link_local || address.is_unspecified() || address.is_multicast()
}

/// A DNS name that no resolver takes for a number (`0x7f.1`, `2130706433`).
fn is_host_name(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    text::is_dns_name(host) && !numeric
}

fn check_authority(pem: &str) -> Result<(), String> {
    if pem.len() > MAX_CA_BYTES {
        return Err(format!("must be at most {MAX_CA_BYTES} bytes"));
    }
    if !pem.contains("-----BEGIN ") {
        return Err("must be certificates in PEM, with the lines BEGIN and END CERTIFICATE (not base64 of that)".into());
    }
    let mut certificates = 0;
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|_| "is not readable as PEM")?;
        if block.label != "CERTIFICATE" {
            // Never echoed: it may be a private key.
            return Err("must contain certificates only; a key or anything else does not belong here".into());
        }
        let trailing = block.parse_x509().map_err(|_| format!("certificate {} cannot be read", certificates + 1))?;
        // Reading the fields proves more than the outer shell.
        if trailing.public_key().raw.is_empty() {
            return Err(format!("certificate {} has no key", certificates + 1));
        }
        certificates += 1;
    }
    match certificates {
        0 => Err("must contain at least one certificate".into()),
        1..=MAX_CERTIFICATES => Ok(()),
        _ => Err(format!("must contain at most {MAX_CERTIFICATES} certificates")),
    }
}

fn check_versions(range: &VersionRange, causes: &mut Causes) {
    let VersionRange { min, max } = range;
    let mut read = |field: &str, text: &Option<String>| {
        let text = text.as_deref()?;
        let version = minor(text);
        if version.is_none() {
            causes.invalid(field, "must be a minor version such as 1.33");
        }
        version
    };
    let lowest = read("spec.acceptedVersions.min", min);
    let highest = read("spec.acceptedVersions.max", max);
    let lowest = match (lowest, min) {
        (Some(lowest), _) => lowest,
        (None, None) => OLDEST_DEFAULT,
        (None, Some(_)) => return,
    };
    if highest.is_some_and(|highest| highest < lowest) {
        let (major, minor) = lowest;
        causes.invalid("spec.acceptedVersions.max", format!("must not be below min, which is {major}.{minor}"));
    }
}

fn minor(text: &str) -> Option<(u32, u32)> {
    let number = |part: &str| {
        let legal = !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        let padded = part.len() > 1 && part.starts_with('0');
        (legal && !padded).then(|| part.parse().ok())?
    };
    let (major, minor) = text.split_once('.')?;
    Some((number(major).filter(|major| *major > 0)?, number(minor)?))
}

fn check_group(field: &str, group: &str, causes: &mut Causes) {
    if BUILT_IN_GROUPS.contains(&group) {
        causes.invalid(field, format!("{group:?} is within reach on every cluster; leave it out"));
    } else if UNREACHABLE_GROUPS.contains(&group) || group.ends_with(".bailiwick.dev") {
        causes.forbidden(field, format!("{group} decides over the whole cluster and cannot be opened to tenants"));
    } else if !text::is_dns_name(group) {
        causes.invalid(field, "must be the DNS name of an API group, without wildcards");
    }
}
