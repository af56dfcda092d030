//! Load and figures: what `ratchet-bench`, `ratchet bench` and `cargo xtask bench` share.
//!
//! [`figures`] has the result of a run, percentiles and medians, and depends on nothing of Ratchet.
//! [`load`] (feature `load`) enqueues jobs that do nothing, waits for them, and notes when each
//! began.

pub mod figures;
#[cfg(feature = "load")]
pub mod load;
