//! Postpones jobs whose payload has a newer version than this node knows, so that a node of the
//! next release can run them during a deploy.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::model::Claim;
use crate::name::Name;

/// How long a job with a newer payload is postponed the first time.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest time for which a job with a newer payload is postponed. Even after a node of the
/// next release has started, the job may wait this long. Nodes of the old release claim the job in
/// vain at this interval.
const LONGEST: Duration = Duration::from_secs(60);

/// Returns how long to postpone a claim, for a `random` in `0.0..1.0`. The delay doubles with every
/// claim of the job up to [`LONGEST`], and is cut at random by up to half, so that jobs do not
/// return together.
pub(super) fn put_off(claim: &Claim, random: f64) -> Duration {
    let doublings = u32::try_from(claim.token.seq.saturating_sub(1)).unwrap_or(u32::MAX);
    let delay = SHORTEST.saturating_mul(1 << doublings.min(16));
    delay.min(LONGEST).mul_f64(1.0 - random / 2.0)
}

/// The kinds and payload versions for which a warning was logged. Each pair is logged once, because
/// a deploy may have many such jobs.
#[derive(Debug, Default)]
pub(crate) struct NewerPayloads(Mutex<BTreeSet<(Name, u32)>>);

impl NewerPayloads {
    /// Logs that a claim is postponed because the node knows only payloads up to version `known`.
    pub(crate) fn tell(&self, claim: &Claim, known: u32) {
        let (id, kind, version) = (claim.token.job, &claim.route.kind, claim.payload_version);
        let mut warned = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        if warned.insert((kind.clone(), version)) {
            tracing::warn!(
                %id, %kind, version, known,
                "jobs have a newer payload version than this node supports; they wait for a newer \
                 node"
            );
        } else {
            tracing::debug!(%id, %kind, version, known, "postponed a job, because its payload \
                version is newer than this node supports");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ClaimToken, JobId};
    use crate::model::NewJob;
    use crate::priority::Priority;
    use crate::time::Timestamp;

    #[test]
    fn delays_double_up_to_their_limit() {
        let delay = |seq: u64, random: f64| {
            let claim = Claim::new(
                ClaimToken::new(JobId::new(), seq, None, Timestamp::UNIX_EPOCH),
                NewJob::new("kind", &()).spec().route.clone(),
                Priority::Normal,
                Timestamp::UNIX_EPOCH,
            );
            put_off(&claim, random).as_millis()
        };
        let first: Vec<u128> = (0..9).map(|seq| delay(seq, 0.0)).collect();
        assert_eq!(
            first,
            [
                1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000
            ]
        );
        assert_eq!((delay(u64::MAX, 0.0), delay(1, 1.0)), (60_000, 500));
    }
}
