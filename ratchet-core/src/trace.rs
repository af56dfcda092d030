//! W3C trace context, carried from the enqueue to the handler.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;

/// The trace in which a job was enqueued: the values of the headers `traceparent` and `tracestate`
/// of W3C Trace Context, level 1.
///
/// ```
/// use ratchet::TraceContext;
///
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace = TraceContext::new(parent)?;
/// # drop(trace);
/// # Ok::<(), ratchet::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    const MAX_STATE_BYTES: usize = 512;

    /// Creates a context from the value of a `traceparent` header, after checking the value.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `traceparent` if the text does not have the form
    /// `00-<32 hex>-<16 hex>-<2 hex>` in lower case, or if one of the two ids consists of zeros
    /// only.
    pub fn new(traceparent: impl Into<String>) -> Result<Self, InvalidInput> {
        let traceparent = traceparent.into();
        let parts: Vec<&str> = traceparent.split('-').collect();
        let hex = |part: &str, length: usize| {
            part.len() == length
                && part
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let set = |part: &str| part.bytes().any(|b| b != b'0');
        let valid = matches!(parts[..], ["00", trace, span, flags]
            if hex(trace, 32) && set(trace) && hex(span, 16) && set(span) && hex(flags, 2));
        if !valid {
            return Err(InvalidInput::new(
                "traceparent",
                "does not have the form `00-<trace id>-<span id>-<flags>`",
            ));
        }
        Ok(Self {
            traceparent,
            tracestate: None,
        })
    }

    /// Adds the value of a `tracestate` header.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `tracestate` if the text is longer than 512 bytes or not printable
    /// ASCII.
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Result<Self, InvalidInput> {
        let state = tracestate.into();
        if state.len() > Self::MAX_STATE_BYTES || !state.bytes().all(|b| (0x20..0x7f).contains(&b))
        {
            return Err(InvalidInput::new(
                "tracestate",
                "is longer than 512 bytes or not printable ASCII",
            ));
        }
        self.tracestate = Some(state);
        Ok(self)
    }

    /// Creates a context from values that a store kept, without checking them.
    #[must_use]
    pub const fn from_stored(traceparent: String, tracestate: Option<String>) -> Self {
        Self {
            traceparent,
            tracestate,
        }
    }

    /// Returns the `traceparent` value.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Returns the `tracestate` value, if there is one.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_parents_are_taken() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(TraceContext::new(good).unwrap().traceparent(), good);
        let upper = good.to_uppercase();
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for bad in ["", "00-ab-cd-01", &good[1..], &upper, zero] {
            assert!(TraceContext::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn state_is_bounded() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::new(parent).unwrap();
        assert!(context.clone().with_state("a=1").is_ok());
        assert!(context.with_state("x".repeat(513)).is_err());
    }
}
