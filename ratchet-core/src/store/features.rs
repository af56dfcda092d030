use super::Store;
use crate::error::InvalidInput;
use crate::model::{JobSpec, NewJob};

/// A feature that a store may lack without lacking a whole part. [`Store::lacks`] reports which.
///
/// ```
/// use ratchet::MemoryStore;
/// use ratchet::Store;
/// use ratchet_core::store::StoreFeature;
///
/// assert_eq!(MemoryStore::new().lacks(StoreFeature::Lanes), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFeature {
    /// Jobs in [lanes](crate::NewJob::lane). The [door](super::Checked) refuses such jobs if the
    /// store lacks this feature.
    Lanes,
    /// Jobs with [tags](crate::NewJob::tag). The [door](super::Checked) refuses such jobs if the
    /// store lacks this feature.
    Tags,
    /// Jobs with an [idempotency key](crate::NewJob::idempotency_key). The [door](super::Checked)
    /// refuses such jobs if the store lacks this feature.
    IdempotencyKeys,
    /// Jobs with a [fair key](crate::NewJob::fair_key). The [door](super::Checked) refuses such jobs
    /// if the store lacks this feature.
    FairKeys,
    /// Writes with a [`Guard`](crate::model::Guard). If the store lacks this feature, the leader of
    /// a cluster marks nodes dead and purges without a guard. A former leader and its successor may
    /// then do this at the same time, which is harmless. The store refuses all other calls with a
    /// guard.
    Guards,
}

/// What a store supports of the features that a job can need, read once for all jobs of a call.
pub(crate) struct JobFeatures {
    workflows: bool,
    signals: bool,
    permits: bool,
    lacks_lanes: Option<&'static str>,
    lacks_tags: Option<&'static str>,
    lacks_idempotency_keys: Option<&'static str>,
    lacks_fair_keys: Option<&'static str>,
}

impl JobFeatures {
    pub(crate) fn of(store: &(impl Store + ?Sized)) -> Self {
        Self {
            workflows: store.workflows().is_some(),
            signals: store.signals().is_some(),
            permits: store.permits().is_some(),
            lacks_lanes: store.lacks(StoreFeature::Lanes),
            lacks_tags: store.lacks(StoreFeature::Tags),
            lacks_idempotency_keys: store.lacks(StoreFeature::IdempotencyKeys),
            lacks_fair_keys: store.lacks(StoreFeature::FairKeys),
        }
    }

    /// Refuses a job that needs a feature which the store lacks.
    ///
    /// # Errors
    /// An error that names the field of the job, and the reason if the store gives one.
    pub(crate) fn check_new(&self, job: &NewJob) -> Result<(), InvalidInput> {
        // The job may have to wait for the end of the job that has its key.
        if !self.workflows && job.changes_holder() {
            return Err(InvalidInput::new("on_conflict", UNSUPPORTED));
        }
        self.check(job.spec())
    }

    /// Refuses the spec of a job that needs a feature which the store lacks.
    ///
    /// # Errors
    /// As for [`check_new`](Self::check_new).
    pub(crate) fn check(&self, job: &JobSpec) -> Result<(), InvalidInput> {
        let refuse = |field| Err(InvalidInput::new(field, UNSUPPORTED));
        let because =
            |field, reason| Err(InvalidInput::new(field, format!("{UNSUPPORTED}: {reason}")));
        if !self.workflows && !job.after.is_empty() {
            return refuse("parent");
        }
        if !self.workflows && job.batch.is_some() {
            return refuse("batch");
        }
        if !self.signals && job.signal.is_some() {
            return refuse("signal");
        }
        if !self.permits && job.route.permit.is_some() {
            return refuse("permit");
        }
        let needs = [
            ("lane", self.lacks_lanes, job.lane.is_some()),
            ("tag", self.lacks_tags, !job.tags.is_empty()),
            (
                "idempotency_key",
                self.lacks_idempotency_keys,
                job.idempotency_key.is_some(),
            ),
            ("fair_key", self.lacks_fair_keys, job.fair_key.is_some()),
        ];
        let missing = needs.into_iter().find_map(|(field, lacks, needed)| {
            let reason = lacks.filter(|_| needed)?;
            Some((field, reason))
        });
        missing.map_or(Ok(()), |(field, reason)| because(field, reason))
    }
}

const UNSUPPORTED: &str = "is not supported by this store";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Condition, OnConflict};
    use crate::{BatchId, JobId};

    const EVERYTHING: JobFeatures = JobFeatures {
        workflows: true,
        signals: true,
        permits: true,
        lacks_lanes: None,
        lacks_tags: None,
        lacks_idempotency_keys: None,
        lacks_fair_keys: None,
    };

    fn job() -> NewJob {
        NewJob::new("kind", &1)
    }

    #[test]
    fn a_store_refuses_each_feature_that_it_lacks_by_name_and_no_other() {
        let child = || job().after(JobId::new(), Condition::Ended);
        let replaces = || job().unique_key("u").on_conflict(OnConflict::Replace);
        let member = || job().in_batch(BatchId::new());
        let waiting = || job().wait_for("s", Duration::from_secs(1));
        let jobs = || {
            [
                ("parent", child()),
                ("batch", member()),
                ("on_conflict", replaces()),
                ("signal", waiting()),
                ("permit", job().permit("api")),
                ("lane", job().lane("l")),
                ("tag", job().tag("t")),
                ("idempotency_key", job().idempotency_key("i")),
                ("fair_key", job().fair_key("f")),
            ]
        };
        let why = Some("the server is too old");
        let without: [(JobFeatures, &[&str]); 7] = [
            (
                JobFeatures {
                    workflows: false,
                    ..EVERYTHING
                },
                &["parent", "batch", "on_conflict"],
            ),
            (
                JobFeatures {
                    signals: false,
                    ..EVERYTHING
                },
                &["signal"],
            ),
            (
                JobFeatures {
                    permits: false,
                    ..EVERYTHING
                },
                &["permit"],
            ),
            (
                JobFeatures {
                    lacks_lanes: why,
                    ..EVERYTHING
                },
                &["lane"],
            ),
            (
                JobFeatures {
                    lacks_tags: why,
                    ..EVERYTHING
                },
                &["tag"],
            ),
            (
                JobFeatures {
                    lacks_idempotency_keys: why,
                    ..EVERYTHING
                },
                &["idempotency_key"],
            ),
            (
                JobFeatures {
                    lacks_fair_keys: why,
                    ..EVERYTHING
                },
                &["fair_key"],
            ),
        ];
        for (features, refused) in without {
            assert_eq!(features.check_new(&job()), Ok(()));
            for (field, job) in jobs() {
                let checked = features.check_new(&job);
                assert_eq!(checked.is_err(), refused.contains(&field), "{field}");
                if let Err(error) = checked {
                    assert_eq!(error.field(), field);
                }
            }
        }
        for (_, job) in jobs() {
            assert_eq!(EVERYTHING.check_new(&job), Ok(()));
        }
    }

    #[test]
    fn the_error_contains_the_reason_of_the_store() {
        let features = JobFeatures {
            lacks_lanes: Some("the server is too old"),
            ..EVERYTHING
        };
        let error = features.check_new(&job().lane("l")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "lane is not supported by this store: the server is too old"
        );
    }
}
