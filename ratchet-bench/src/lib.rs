//! Load and figures that `ratchet-bench`, `ratchet bench` and `cargo xtask bench` share.
//!
//! [`figures`] has the result of a run, percentiles and medians, and depends on no crate of
//! Ratchet. [`load`] (feature `load`) enqueues jobs that do nothing, waits for them, and records
//! when each of them began.

pub mod figures;
#[cfg(feature = "load")]
pub mod load;
