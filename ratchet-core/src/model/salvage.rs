//! Reads the readable parts of a damaged job.

use crate::error::InvalidInput;
use crate::model::JobRecord;

/// Collects the readable parts of a damaged stored job, so that an operator can see the job. Also
/// keeps the first problem found.
#[derive(Debug, Default)]
pub struct Salvage {
    problem: Option<InvalidInput>,
}

impl Salvage {
    /// Returns the value that was read, or `default` if the value could not be read.
    pub fn keep<T>(&mut self, read: Result<T, InvalidInput>, default: T) -> T {
        read.unwrap_or_else(|problem| {
            self.problem.get_or_insert(problem);
            default
        })
    }

    /// Sets the job's last error to the first problem found, unless the job already has a last
    /// error.
    pub fn finish(self, job: &mut JobRecord) {
        if job.last_error.is_none() {
            job.last_error = self.problem.map(|problem| problem.of_stored_job());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewJob;
    use crate::time::from_millis;

    fn job() -> JobRecord {
        let new = NewJob::new("kind", &1);
        JobRecord::new(new.id(), new.spec().clone(), from_millis(0), from_millis(0))
    }

    #[test]
    fn the_first_problem_is_named_and_what_cannot_be_read_is_at_its_default() {
        let spoiled = |field| Err(InvalidInput::new(field, "is spoiled"));
        let mut job = job();
        let salvage = |job: &mut JobRecord, attempts| {
            let mut salvage = Salvage::default();
            job.attempts = salvage.keep(attempts, 0);
            job.crash_count = salvage.keep(spoiled("crash_count"), 7);
            salvage.finish(job);
        };
        salvage(&mut job, spoiled("attempts"));
        assert_eq!((job.attempts, job.crash_count), (0, 7));
        let text = "the stored job cannot be read: attempts is spoiled";
        assert_eq!(job.last_error.as_deref(), Some(text));
        // An existing error of the job is not replaced.
        salvage(&mut job, Ok(3));
        assert_eq!((job.attempts, job.last_error.as_deref()), (3, Some(text)));
    }

    #[test]
    fn a_job_that_can_be_read_has_no_error() {
        let mut job = job();
        let mut salvage = Salvage::default();
        job.attempts = salvage.keep(Ok(3), 0);
        salvage.finish(&mut job);
        assert_eq!((job.attempts, job.last_error), (3, None));
    }
}
