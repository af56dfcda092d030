pub(super) mod poller;
pub(super) mod prefetch;
