//! Sign-ins: many at once, each a user from an address of its own, and the memory that they take.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures::StreamExt as _;
use serde_json::json;

use super::load::{self, Target};
use super::resident::{forget_peak, peak_kib, resident_kib};
use super::stage::Stage;

const PASSWORD: &str = "first-Harbour-lantern-3";
/// How soon a client that was told to wait comes back: sooner than it was told, as the impatient do.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time for all of them.
const LONGEST: Duration = Duration::from_secs(120);

/// What was seen.
pub struct Logins {
    pub per_second: f64,
    pub peak_rss_mib: f64,
    pub before_mib: f64,
    /// Answers that said to come again later.
    pub put_off: usize,
}

/// Signs in so many users at once.
pub async fn measure(stage: &Stage, count: usize) -> anyhow::Result<Logins> {
    let admin = Ipv4Addr::LOCALHOST;
    let created = futures::stream::iter((0..count).map(|n| async move {
        let object =
            json!({"apiVersion": "bailiwick.dev/v1alpha1", "kind": "User", "metadata": {"name": name(n)}, "spec": {}});
        let status = load::post(&stage.api("/apis/bailiwick.dev/v1alpha1/users")?, admin, &object).await?;
        ensure!(status.is_success(), "user {n}: {status}");
        let password = stage.api(&format!("/apis/bailiwick.dev/v1alpha1/users/{}/password", name(n)))?;
        let status = load::post(&password, admin, &json!({"password": PASSWORD, "mustChange": false})).await?;
        ensure!(status.is_success(), "password of user {n}: {status}");
        Ok(())
    }));
    for done in created.buffer_unordered(4).collect::<Vec<_>>().await {
        done?;
    }
    let target = Target { token: None, ..stage.api("/auth/login")? };
    let pid = target.pids[0];
    let before_mib = resident_kib(pid)? / 1024.0;
    forget_peak(pid)?;
    let begun = Instant::now();
    let all = futures::future::try_join_all((0..count).map(|n| sign_in(&target, n, begun))).await?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Logins {
        per_second: count as f64 / seconds,
        peak_rss_mib: peak_kib(pid)? / 1024.0,
        before_mib,
        put_off: all.into_iter().sum(),
    })
}

/// How often it was put off.
async fn sign_in(target: &Target, n: usize, begun: Instant) -> anyhow::Result<usize> {
    let [.., high, low] = (n as u32).to_be_bytes();
    let from = Ipv4Addr::new(127, 7, high, low);
    let body = json!({"username": name(n), "password": PASSWORD});
    let mut put_off = 0;
    while begun.elapsed() < LONGEST {
        match load::post(target, from, &body).await? {
            status if status.is_success() => return Ok(put_off),
            http::StatusCode::TOO_MANY_REQUESTS => put_off += 1,
            status => bail!("sign-in answered {status}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
    bail!("not signed in within {LONGEST:?}")
}

fn name(n: usize) -> String {
    format!("person-{n}")
}
