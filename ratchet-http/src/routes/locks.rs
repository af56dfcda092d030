//! locks
