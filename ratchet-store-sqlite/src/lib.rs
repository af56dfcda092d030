//! Ratchet on SQLite.
