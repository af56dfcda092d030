//! Batches of jobs.
