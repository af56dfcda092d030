//! recurring
