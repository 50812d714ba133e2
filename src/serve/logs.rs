//! The log: JSON lines on standard error.

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts it, with the levels of `BAILIWICK_LOG`.
pub(super) fn init() {
    let filter = EnvFilter::try_from_env("BAILIWICK_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A second subscriber in one process is a test's; the first stays.
    let _ = subscriber(filter, std::io::stderr).try_init();
}

fn subscriber<W>(filter: EnvFilter, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().json().with_writer(to);
    tracing_subscriber::registry().with(lines.with_filter(filter_fn(is_fit)).with_filter(filter))
}

/// Below `info` only our own modules speak, whatever was asked for: HTTP libraries print frames, header values and bodies
/// there, and with them credentials.
fn is_fit(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let ours = target == "bailiwick" || target.starts_with("bailiwick::");
    ours || *metadata.level() <= Level::INFO
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::{info, trace};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn below_info_only_our_own_modules_speak() {
        for asked in ["trace", "h2=trace,bailiwick=trace", "bailiwick=trace,hyper::proto=debug,info"] {
            let lines = Lines::default();
            let to = lines.clone();
            let subscriber = subscriber(EnvFilter::new(asked), move || to.clone());
            tracing::subscriber::with_default(subscriber, || {
                trace!(target: "bailiwick::proxy", "our own");
                trace!(target: "h2::codec", "a frame with a secret");
                trace!(target: "bailiwick_look_alike", "a frame with a secret");
                tracing::debug!(target: "hyper::proto::h1", "a frame with a secret");
                info!(target: "bailiwick", "of note");
            });
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            assert!(text.contains("our own") && text.contains("of note"), "{asked}: {text}");
            assert!(!text.contains("secret"), "{asked}: {text}");
        }
    }

    #[test]
    fn what_strangers_find_worth_telling_is_told() {
        let lines = Lines::default();
        let to = lines.clone();
        tracing::subscriber::with_default(subscriber(EnvFilter::new("info"), move || to.clone()), || {
            info!(target: "kube_runtime", "told");
            trace!(target: "bailiwick::proxy", "not asked for");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert!(text.contains("told") && !text.contains("not asked for"), "{text}");
    }
}
