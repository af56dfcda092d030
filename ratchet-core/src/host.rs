//! Checks host names, and removes the port from the value of a `Host` header.

/// Returns the value of a `Host` header without its port. An IPv6 address keeps its brackets.
///
/// ```
/// use ratchet_core::host::without_port;
///
/// assert_eq!(without_port("ops.example.com:8080"), "ops.example.com");
/// assert_eq!(without_port("[2001:db8::1]:8080"), "[2001:db8::1]");
/// ```
#[must_use]
pub fn without_port(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    &host[..end]
}

/// Checks that `host` is a host name or an IP address, without a port. An IPv6 address must be in
/// brackets.
///
/// # Errors
/// Returns a text that describes the invalid host and the expected form.
pub fn check(host: &str) -> Result<(), String> {
    if host.is_empty() || host.contains(['/', '@', ' ']) || without_port(host) != host {
        return Err(format!(
            "has {host:?}; expected a host name or an address without a port, an IPv6 address in brackets"
        ));
    }
    Ok(())
}
