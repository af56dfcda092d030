//! bulk
