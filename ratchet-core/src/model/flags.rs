//! The flags of a stored job: bits that show which other data is stored for the job.

use super::{JobSpec, NewJob};

/// The flags of a stored job. Each bit means that the job has a property, or that another table has
/// rows of the job.
///
/// A store keeps the bits next to the state of the job. So the store reads another table only if
/// that table has rows of the job.
///
/// ```
/// use ratchet::NewJob;
/// use ratchet_core::model::JobFlags;
///
/// let job = NewJob::new("mail", &()).tag("tenant:7");
/// let flags = JobFlags::of(job.spec());
/// assert!(flags.has_any(JobFlags::TAGS));
/// assert!(!flags.has_any(JobFlags::AWAITED));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobFlags(i16);

impl JobFlags {
    /// The job has a unique key.
    pub const UNIQUE_KEY: Self = Self(1);
    /// The job has a timeout or a stall timeout.
    pub const TIMEOUTS: Self = Self(2);
    /// The job has a lane.
    pub const LANE: Self = Self(4);
    /// The job waits, or waited, for other jobs, for batches or for a signal.
    pub const WAITS: Self = Self(8);
    /// Other jobs wait, or waited, for the job.
    pub const CHILDREN: Self = Self(16);
    /// The job is in a batch.
    pub const BATCH: Self = Self(32);
    /// The job has tags.
    pub const TAGS: Self = Self(64);
    /// The route of the job requires a permit.
    pub const PERMIT: Self = Self(128);
    /// The job has an expiry.
    pub const EXPIRES: Self = Self(256);
    /// The job was claimed while the fair key of the job had a limit. While the job does not run,
    /// the flag has no meaning.
    pub const LIMITED: Self = Self(512);
    /// The end of the job may affect its lane, its children or its batch.
    pub const AWAITED: Self = Self::LANE.or(Self::FOLLOWED);
    /// The end of the job may affect its children or its batch.
    pub const FOLLOWED: Self = Self::CHILDREN.or(Self::BATCH);
    /// The job waits, or waited, for other jobs, batches or a signal, or it is in a batch.
    pub const LINKED: Self = Self::WAITS.or(Self::BATCH);

    /// The flags that SQL statements use, each with the name of its placeholder.
    pub const WORDS: [(&'static str, Self); 11] = [
        ("unique_key", Self::UNIQUE_KEY),
        ("timeouts", Self::TIMEOUTS),
        ("lane", Self::LANE),
        ("waits", Self::WAITS),
        ("children", Self::CHILDREN),
        ("batch", Self::BATCH),
        ("tags", Self::TAGS),
        ("permit", Self::PERMIT),
        ("awaited", Self::AWAITED),
        ("expires", Self::EXPIRES),
        ("limited", Self::LIMITED),
    ];

    /// Returns the flags of a new job, for which no other job waits yet.
    #[must_use]
    pub fn of_new(job: &NewJob) -> Self {
        let flags = Self::of(job.spec());
        match job.expiry() {
            Some(_) => flags.or(Self::EXPIRES),
            None => flags,
        }
    }

    /// Returns the flags that follow from the spec of a new job, for which no other job waits yet.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        let has = [
            (spec.unique_key.is_some(), Self::UNIQUE_KEY),
            (
                spec.timeout.is_some() || spec.stall_timeout.is_some(),
                Self::TIMEOUTS,
            ),
            (spec.lane.is_some(), Self::LANE),
            (spec.waits(), Self::WAITS),
            (spec.batch.is_some(), Self::BATCH),
            (!spec.tags.is_empty(), Self::TAGS),
            (spec.route.permit.is_some(), Self::PERMIT),
        ];
        let flags = has.into_iter().filter(|(has, _)| *has);
        flags.fold(Self::default(), |flags, (_, flag)| flags.or(flag))
    }

    /// Returns the flags that are set in `self` or in `other`.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether at least one of these flags is set.
    #[must_use]
    pub const fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// Returns the bits, as stores keep them.
    #[must_use]
    pub const fn bits(self) -> i16 {
        self.0
    }

    /// Returns the flags with these bits.
    #[must_use]
    pub const fn from_bits(bits: i16) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewJob;

    #[test]
    fn a_job_has_the_flags_of_what_it_has() {
        let flags = |job: NewJob| JobFlags::of(job.spec());
        let job = || NewJob::new("kind", &1);
        assert_eq!(flags(job()), JobFlags::default());
        assert_eq!(flags(job().unique_key("u")), JobFlags::UNIQUE_KEY);
        assert_eq!(flags(job().lane("l")), JobFlags::LANE);
        let both = flags(job().tag("t").permit("p"));
        assert_eq!(both, JobFlags::TAGS.or(JobFlags::PERMIT));
        let expires = job().tag("t").expires_in(std::time::Duration::from_secs(1));
        let expires = JobFlags::of_new(&expires);
        assert_eq!(expires, JobFlags::TAGS.or(JobFlags::EXPIRES));
        assert_eq!(JobFlags::of_new(&job()), JobFlags::default());
    }

    /// Databases store these bits, so their values must stay the same.
    #[test]
    fn the_bits_never_change() {
        let bits = JobFlags::WORDS.map(|(_, flag)| flag.bits());
        assert_eq!(bits, [1, 2, 4, 8, 16, 32, 64, 128, 52, 256, 512]);
    }
}
