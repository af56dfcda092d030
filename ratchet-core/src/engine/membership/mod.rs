pub(super) mod clock_watch;
pub(super) mod heartbeat_interval;
