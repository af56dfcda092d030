//! The version of a payload, and the form in which stores save it.

use crate::error::InvalidInput;
use crate::limits::MAX_PAYLOAD_VERSION;

/// The version of a payload whose type sets no version.
pub(crate) const FIRST: u32 = 1;

/// Returns the stored form of a payload's version: `None` for version 1, which most payloads have.
#[must_use]
pub fn payload_version_to_stored(version: u32) -> Option<i32> {
    let stored = i32::try_from(version).unwrap_or(i32::MAX);
    (version != FIRST).then_some(stored)
}

/// Returns the version of a payload from its stored form.
///
/// # Errors
/// [`InvalidInput`] if the number is not an allowed version.
pub fn payload_version_from_stored(stored: Option<i64>) -> Result<u32, InvalidInput> {
    let Some(stored) = stored else {
        return Ok(FIRST);
    };
    let version = u32::try_from(stored).unwrap_or(0);
    check(version)
        .map(|()| version)
        .map_err(|_| InvalidInput::new("payload_version", format!("cannot be {stored}")))
}

/// Refuses a version that is 0 or above [`MAX_PAYLOAD_VERSION`].
pub(crate) fn check(version: u32) -> Result<(), InvalidInput> {
    match version {
        FIRST..=MAX_PAYLOAD_VERSION => Ok(()),
        0 => Err(InvalidInput::new("payload_version", "is 0")),
        _ => Err(InvalidInput::new(
            "payload_version",
            format!("is {version}; the highest allowed is {MAX_PAYLOAD_VERSION}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_back_from_a_store_and_what_is_none_is_refused() {
        for version in [1, 2, 3_000, MAX_PAYLOAD_VERSION] {
            let stored = payload_version_to_stored(version).map(i64::from);
            assert_eq!(payload_version_from_stored(stored), Ok(version));
        }
        assert_eq!(payload_version_to_stored(1), None);
        for stored in [0, -1, i64::from(MAX_PAYLOAD_VERSION) + 1, i64::MAX] {
            let error = payload_version_from_stored(Some(stored)).unwrap_err();
            assert_eq!(error.field(), "payload_version");
        }
    }
}
