pub(super) mod daemon;
pub(super) mod leader;
