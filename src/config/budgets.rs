//! Budgets: how much may be asked of the proxy at a time.

use std::num::NonZeroUsize;

use serde::Deserialize;

use super::ConfigError;
use crate::clusters::upstream::MOST_STREAMS;
use crate::proxy::ProxySettings;

/// How much may be asked of the proxy at a time. What is beyond it is refused with 429 and the name of the budget.
///
/// *Requests* are counted while they are in flight: from when their head was read until their answer was passed on.
/// *Streams* are long-running responses: watches, logs that are followed, sessions. A list or watch across namespaces counts
/// as often as the cluster is asked at a time. `docs/budgets.md` says how the budgets are shared.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct Proxy {
    /// Streams of one account, on all clusters together. 2500 where absent.
    pub max_streams_per_user: Option<NonZeroUsize>,
    /// Requests of one account, on all clusters together. 400 where absent.
    pub max_requests_per_user: Option<NonZeroUsize>,
    /// Streams of one token. Four fifths of `max_streams_per_user` where absent, and never more than that.
    pub max_streams_per_token: Option<NonZeroUsize>,
    /// Requests of one token. Four fifths of `max_requests_per_user` where absent, and never more than that.
    pub max_requests_per_token: Option<NonZeroUsize>,
    /// Streams to one cluster. 10000 where absent, which is the most that there may be.
    pub max_streams_per_cluster: Option<NonZeroUsize>,
    /// Requests to one cluster. 160 where absent; more where its API server works on more at a time
    /// (`--max-requests-inflight`).
    pub max_requests_per_cluster: Option<NonZeroUsize>,
    /// Streams of one project on one cluster. Half of `max_streams_per_cluster` where absent, and never more than that.
    pub max_streams_per_project: Option<NonZeroUsize>,
    /// Requests of one project on one cluster. Half of `max_requests_per_cluster` where absent, and never more than that.
    pub max_requests_per_project: Option<NonZeroUsize>,
    /// Namespaces over which one list or watch is spread. 500 where absent. A wider one is refused with 413, because it
    /// would not fit later either.
    pub max_namespaces_per_request: Option<NonZeroUsize>,
}

impl Proxy {
    /// With defaults for what is absent.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Value`] where a part is given more than the whole.
    pub fn settings(&self) -> Result<ProxySettings, ConfigError> {
        let Self {
            max_streams_per_user,
            max_requests_per_user,
            max_streams_per_token,
            max_requests_per_token,
            max_streams_per_cluster,
            max_requests_per_cluster,
            max_streams_per_project,
            max_requests_per_project,
            max_namespaces_per_request,
        } = self;
        let default = ProxySettings::default();
        let or = |given: &Option<NonZeroUsize>, absent: usize| given.map_or(absent, NonZeroUsize::get);
        let streams_of_user = or(max_streams_per_user, default.max_streams_per_user);
        let requests_of_user = or(max_requests_per_user, default.max_requests_per_user);
        let streams_of_cluster = or(max_streams_per_cluster, default.max_streams_per_cluster);
        let requests_of_cluster = or(max_requests_per_cluster, default.max_requests_per_cluster);
        let settings = ProxySettings {
            max_streams_per_user: streams_of_user,
            max_requests_per_user: requests_of_user,
            max_streams_per_token: or(max_streams_per_token, ProxySettings::of_one_token(streams_of_user)),
            max_requests_per_token: or(max_requests_per_token, ProxySettings::of_one_token(requests_of_user)),
            max_streams_per_cluster: streams_of_cluster,
            max_requests_per_cluster: requests_of_cluster,
            max_streams_per_project: or(max_streams_per_project, ProxySettings::of_one_project(streams_of_cluster)),
            max_requests_per_project: or(max_requests_per_project, ProxySettings::of_one_project(requests_of_cluster)),
            max_namespaces_per_request: or(max_namespaces_per_request, default.max_namespaces_per_request),
            ..default
        };
        let most = "what connections to one cluster carry";
        for (key, part, whole, of) in [
            ("proxy.max_streams_per_token", settings.max_streams_per_token, streams_of_user, "max_streams_per_user"),
            (
                "proxy.max_requests_per_token",
                settings.max_requests_per_token,
                requests_of_user,
                "max_requests_per_user",
            ),
            (
                "proxy.max_streams_per_project",
                settings.max_streams_per_project,
                streams_of_cluster,
                "max_streams_per_cluster",
            ),
            (
                "proxy.max_requests_per_project",
                settings.max_requests_per_project,
                requests_of_cluster,
                "max_requests_per_cluster",
            ),
            ("proxy.max_streams_per_cluster", streams_of_cluster, MOST_STREAMS, most),
        ] {
            if part > whole {
                return Err(ConfigError::Value { key, why: format!("{part} is more than {whole}, {of}") });
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &str) -> Result<ProxySettings, String> {
        let given: Proxy = toml::from_str(toml).map_err(|why| why.to_string())?;
        given.settings().map_err(|why| why.to_string())
    }

    #[test]
    fn what_is_absent_follows_from_what_is_given() {
        let default = settings("").unwrap();
        assert_eq!(format!("{default:?}"), format!("{:?}", ProxySettings::default()));
        let given = settings("max_requests_per_user = 10\nmax_streams_per_cluster = 31").unwrap();
        assert_eq!((given.max_requests_per_token, given.max_streams_per_token), (8, 2_000));
        assert_eq!((given.max_requests_per_project, given.max_streams_per_project), (80, 16));
        let least = settings("max_requests_per_user = 1\nmax_requests_per_cluster = 1").unwrap();
        assert_eq!((least.max_requests_per_token, least.max_requests_per_project), (1, 1));
    }

    #[test]
    fn a_part_is_given_at_most_the_whole() {
        for (key, whole, most) in [
            ("max_streams_per_token", "max_streams_per_user", 7),
            ("max_requests_per_token", "max_requests_per_user", 7),
            ("max_streams_per_project", "max_streams_per_cluster", 7),
            ("max_requests_per_project", "max_requests_per_cluster", 7),
            ("max_streams_per_cluster", "", MOST_STREAMS),
        ] {
            let whole = if whole.is_empty() { String::new() } else { format!("{whole} = {most}\n") };
            assert!(settings(&format!("{whole}{key} = {most}")).is_ok(), "{key}");
            let error = settings(&format!("{whole}{key} = {}", most + 1)).unwrap_err();
            assert!(error.starts_with(&format!("proxy.{key}: {} is more than {most}", most + 1)), "{error}");
        }
        for key in ["max_requests_per_cluster", "max_namespaces_per_request", "max_streams_per_project"] {
            assert!(settings(&format!("{key} = 0")).unwrap_err().contains(key));
        }
        assert!(settings("max_request_per_user = 5").unwrap_err().contains("max_request_per_user"));
    }
}
