use super::*;

fn read(method: &str, target: &str) -> Result<RequestInfo, TargetError> {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    parse(method, &segments(path)?, query)
}

fn resource(method: &str, target: &str) -> String {
    match read(method, target) {
        Ok(RequestInfo::Resource(r)) => {
            format!("{} {}|{} ns={} name={}", r.verb.as_str(), r.group, r.resource, r.namespace, r.name)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn reads_as_the_api_server_does() {
    for (method, target, expected) in [
        ("GET", "/api/v1/namespaces/a/pods", "list |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?watch=1", "watch |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?watch=true", "watch |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?watch=", "watch |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?watch=nonsense", "watch |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?watch=False", "list |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?w%61tch=1", "watch |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list |pods ns=a name=p"),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%21%3Dp", "list |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=a!=b,metadata.name==p,c=d", "list |pods ns=a name=p"),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p,c", "list |pods ns=a name="),
        ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p&limit=500", "list |pods ns=a name=p"),
        (
            "GET",
            "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p&labelSelector=a/b=c,d==e",
            "list |pods ns=a name=p",
        ),
        // Without a name nothing hangs on what the API server can read.
        ("GET", "/api/v1/namespaces/a/pods?limit=many&labelSelector=a+in+(b)", "list |pods ns=a name="),
        ("HEAD", "/api/v1/namespaces/a/pods/p", "get |pods ns=a name=p"),
        ("GET", "/api/v1/namespaces/a/pods/p/log", "get |pods/log ns=a name=p"),
        ("POST", "/api/v1/namespaces/a/pods/p/exec", "create |pods/exec ns=a name=p"),
        ("GET", "/api/v1/namespaces/a", "get |namespaces ns=a name=a"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update |namespaces/finalize ns=a name=a"),
        ("GET", "/api/v1/namespaces/a/status", "get |namespaces/status ns=a name=a"),
        ("GET", "/api/v1/namespaces", "list |namespaces ns= name="),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps|deployments ns=a name="),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete apps|deployments ns=a name=d"),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch apps|deployments/scale ns=a name=d"),
        ("GET", "/apis/apps/v1/deployments", "list apps|deployments ns= name="),
        ("GET", "/apis/apps/v1/namespaces/a/namespaces/b", "get apps|namespaces ns=a name=b"),
        ("GET", "/api/v1/namespaces/a/pods/p/proxy/x/y", "get |pods/proxy ns=a name=p"),
        ("GET", "/api/v1/namespaces/a/roles/a%3Ab", "get |roles ns=a name=a:b"),
    ] {
        assert_eq!(resource(method, target), expected, "{method} {target}");
    }
}

#[test]
fn reads_paths() {
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/apps/v1",
    ] {
        assert!(matches!(read("GET", path), Ok(RequestInfo::Path(PathRequest { reads: true, .. }))), "{path}");
    }
    for path in
        ["/metrics", "/healthz", "/logs/x", "/", "/debug/pprof", "/.well-known/openid-configuration", "/openapi"]
    {
        assert!(read("GET", path).is_err(), "{path}");
    }
}

#[test]
fn refuses_what_can_be_read_in_two_ways() {
    for target in [
        "/api/v1//namespaces/a/pods",
        "/api/v1/namespaces/a/pods/",
        "/api/v1/namespaces/a/../b/pods",
        "/api/v1/namespaces/a/./pods",
        "/api/v1/namespaces/a/%2e%2e/pods",
        "/api/v1/namespaces/a/%2E/pods",
        "/api/v1/namespaces/a%2fb/pods",
        "/api/v1/namespaces/a%5cb/pods",
        "/api/v1/namespaces/a\\b/pods",
        "/api/v1/namespaces/a;b/pods",
        "/api/v1/namespaces/a%3Bb/pods",
        "/api/v1/namespaces/a%00/pods",
        "/api/v1/namespaces/a%0a/pods",
        "/api/v1/namespaces/a%25/pods",
        "/api/v1/namespaces/a%zz/pods",
        "/api/v1/namespaces/a%2/pods",
        "/api/v1/namespaces/a%23/pods",
        "/api/v1/namespaces/a%3fwatch/pods",
        "/api/v1/namespaces/ä/pods",
        "/api/v1/namespaces/a b/pods",
        "/api/v1/watch/namespaces/a/pods",
        "/api/v1/proxy/namespaces/a/pods/p",
        "/api/v1/namespaces/a/pods/p/log/more",
        "/api/v1/namespaces/a/pods?watch=0&watch=1",
        "/api/v1/namespaces/a/pods?w%61tch=0&watch=1",
        "/api/v1/namespaces/a/pods?a;watch=1",
        "/api/v1/namespaces/a/pods?a=%zz",
        "/api/v1/namespaces/a/pods/p?watch=1",
        "/api/v1/namespaces/a/pods?limit=1&limit=2",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p&limit=many",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p&timeoutSeconds=",
        "/api/v1/namespaces/a/pods?labelSelector=a+in+(b)&fieldSelector=metadata.name=p",
        "/api/v1/namespaces/a/pods?labelSelector=-a=b&fieldSelector=metadata.name=p",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p%5C%2Cq",
    ] {
        assert!(read("GET", target).is_err(), "{target} must be refused");
    }
    assert_eq!(read("TRACE", "/api/v1/namespaces/a/pods"), Err(TargetError::Method));
    assert_eq!(read("CONNECT", "/api/v1/namespaces/a/pods"), Err(TargetError::Method));
    assert_eq!(segments(&format!("/{}", "a".repeat(MAX_TARGET))), Err(TargetError::TooLong));
}

#[test]
fn knows_streams_and_mutations() {
    let get = |method: &str, target: &str| match read(method, target) {
        Ok(RequestInfo::Resource(r)) => r,
        other => panic!("{other:?}"),
    };
    let exec = get("GET", "/api/v1/namespaces/a/pods/p/exec?command=sh");
    assert!(exec.is_interactive() && exec.is_long_running() && exec.mutates());
    let logs = get("GET", "/api/v1/namespaces/a/pods/p/log?follow=true");
    assert!(logs.is_long_running() && !logs.mutates());
    assert!(!get("GET", "/api/v1/namespaces/a/pods/p/log").is_long_running());
    assert!(get("GET", "/api/v1/namespaces/a/pods?watch=1").is_long_running());
    // A look-alike in another group is no exec.
    assert!(!get("GET", "/apis/example.com/v1/namespaces/a/pods/p/exec").is_interactive());
    let dry = get("POST", "/api/v1/namespaces/a/serviceaccounts/s/token?dryRun=All");
    assert!(dry.dry_run && dry.mutates());
}
