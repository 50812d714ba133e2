use super::*;

fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

#[test]
fn counts_under_the_promised_names() {
    let metrics = Metrics::new();
    metrics.request(Surface::Kube, VerbClass::Read, 200, Some(0.003));
    metrics.request(Surface::Kube, VerbClass::Read, 200, Some(0.2));
    metrics.request(Surface::Api, VerbClass::Write, 409, None);
    metrics.request(Surface::Api, VerbClass::Write, 7000, None);
    metrics.refusals.get_or_create(&ReasonLabel { reason: Refusal::Forbidden }).inc();
    metrics.streams.get_or_create(&StreamLabel { kind: StreamKind::Upgrade }).inc();
    metrics.streams_cut.get_or_create(&CauseLabel { cause: CutCause::Account }).inc();
    let cluster: std::sync::Arc<str> = "demo".into();
    let label = ClusterErrorLabel { cluster: cluster.clone(), kind: UpstreamError::Timeout };
    metrics.upstream_errors.get_or_create(&label).inc();
    metrics.audit.dropped.inc();
    metrics.audit.records.get_or_create(&crate::audit::StageLabel { stage: "intent" }).inc();
    metrics.store_writes.inc_by(4);
    metrics.index_revision.set(1 << 40);
    metrics.index_generation.set(5);
    metrics.cluster_usable.get_or_create(&ClusterLabel { cluster: cluster.clone() }).set(1);
    metrics.contested.get_or_create(&ClusterLabel { cluster: cluster.clone() }).set(2);
    metrics.reconciles.get_or_create(&ClusterResultLabel { cluster, result: Success::Error }).inc();
    metrics.logins.get_or_create(&LoginResultLabel { result: LoginResult::BackOff }).inc();
    let text = metrics.encode();
    for (series, expected) in [
        ("bailiwick_requests_total{surface=\"kube\",verb=\"read\",code=\"200\"}", "2"),
        ("bailiwick_requests_total{surface=\"api\",verb=\"write\",code=\"409\"}", "1"),
        ("bailiwick_requests_total{surface=\"api\",verb=\"write\",code=\"0\"}", "1"),
        ("bailiwick_request_duration_seconds_bucket{le=\"0.005\",surface=\"kube\"}", "1"),
        ("bailiwick_request_duration_seconds_count{surface=\"kube\"}", "2"),
        ("bailiwick_refusals_total{reason=\"forbidden\"}", "1"),
        ("bailiwick_streams{kind=\"upgrade\"}", "1"),
        ("bailiwick_streams_cut_total{cause=\"account\"}", "1"),
        ("bailiwick_upstream_errors_total{cluster=\"demo\",kind=\"timeout\"}", "1"),
        ("bailiwick_audit_records_total{stage=\"intent\"}", "1"),
        ("bailiwick_audit_dropped_total", "1"),
        ("bailiwick_store_writes_total", "4"),
        ("bailiwick_index_revision", "1099511627776"),
        ("bailiwick_index_generation", "5"),
        ("bailiwick_cluster_usable{cluster=\"demo\"}", "1"),
        ("bailiwick_contested{cluster=\"demo\"}", "2"),
        ("bailiwick_reconcile_total{cluster=\"demo\",result=\"error\"}", "1"),
        ("bailiwick_logins_total{result=\"backoff\"}", "1"),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    // A removed cluster leaves nothing behind, and takes nothing else along.
    metrics.forget_cluster("demo");
    let text = metrics.encode();
    assert!(!text.contains("demo"), "{text}");
    assert_eq!(value(&text, "bailiwick_store_writes_total"), Some("4"));
}

#[test]
fn the_number_of_request_series_is_bounded() {
    let metrics = Metrics::new();
    for code in 0..=u16::MAX {
        metrics.request(Surface::Kube, VerbClass::Other, code, None);
    }
    let text = metrics.encode();
    let series = text.lines().filter(|line| line.starts_with("bailiwick_requests_total{")).count();
    // Every status there is, 0 for the rest, and those that stand from the start.
    assert_eq!(series, 500 + 1 + Surface::ALL.len() * VerbClass::ALL.len() - 1);
}
