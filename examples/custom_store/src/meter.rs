use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ratchet_core::{Result, time};

/// What a [`MeteredStore`](crate::MeteredStore) counted of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodCounts {
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Those of them that took at least as long as the meter calls slow.
    pub slow: u64,
}

/// Counts calls by the name of their method.
#[derive(Debug)]
pub struct Meter {
    slow: Duration,
    methods: Mutex<BTreeMap<&'static str, MethodCounts>>,
}

impl Meter {
    /// A meter at zero, for which a call is slow from this duration on.
    #[must_use]
    pub const fn new(slow: Duration) -> Self {
        Self {
            slow,
            methods: Mutex::new(BTreeMap::new()),
        }
    }

    /// What was counted, by method; methods that were never called are absent.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, MethodCounts> {
        self.lock().clone()
    }

    /// Awaits a call and counts it.
    pub(crate) async fn count<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = time::monotonic();
        let answer = call.await;
        let took = time::monotonic().saturating_duration_since(begun);
        let mut methods = self.lock();
        let counts = methods.entry(method).or_default();
        counts.calls += 1;
        counts.failed += u64::from(answer.is_err());
        counts.slow += u64::from(took >= self.slow);
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, MethodCounts>> {
        self.methods
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}
