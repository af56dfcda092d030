//! Shows database URLs without their secrets.
//!
//! Shows only parts that are known to be harmless. An unescaped password may be anywhere in a URL,
//! and a text that cannot be parsed may itself be a password.

use crate::backend::Backend;
use crate::secret::HIDDEN;

/// Names of the URL parameters whose values are safe to show.
const SHOWN: [&str; 27] = [
    "app",
    "appname",
    "application name",
    "application_name",
    "authsource",
    "connect_timeout",
    "data source",
    "database",
    "dbname",
    "directconnection",
    "encrypt",
    "host",
    "initial catalog",
    "maxpoolsize",
    "port",
    "readpreference",
    "replicaset",
    "server",
    "session_locks",
    "sslmode",
    "synchronous",
    "tls",
    "trust_any_certificate",
    "trustservercertificate",
    "user",
    "user id",
    "w",
];

/// Names of the URL parameters that are shown without their values. All other parameters are hidden
/// completely, because their names may be part of a password.
const NAMED: [&str; 4] = ["password", "pwd", "sslpassword", "authmechanismproperties"];

/// Returns the text before the first colon. Returns `None` if this text is not a possible scheme.
pub(crate) fn scheme(url: &str) -> Option<&str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let (scheme, _) = url.split_once(':')?;
    let fits = !scheme.is_empty() && scheme.len() <= 32 && scheme.chars().all(allowed);
    fits.then_some(scheme)
}

/// Returns a database URL without its secrets, so that it is safe to log. Also accepts a connection
/// string that consists of `key=value` pairs.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let Some(scheme) = scheme(url) else {
        return pairs(url);
    };
    let rest = &url[scheme.len() + 1..];
    let lower = scheme.to_ascii_lowercase();
    match Backend::of(&lower) {
        Some(Backend { server: true, .. }) => match rest.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{}", remote(rest)),
            None => format!("{scheme}:{HIDDEN}"),
        },
        Some(Backend { section: None, .. }) if !rest.is_empty() => HIDDEN.to_owned(),
        Some(_) => format!("{scheme}:{}", with_query(rest)),
        None if lower == scheme && rest.starts_with("//") => format!("{scheme}://{HIDDEN}"),
        // The text may not be a URL at all.
        None => HIDDEN.to_owned(),
    }
}

/// Hides the secrets of a URL's part after `//`: `user:password@host:port/database?parameters`.
fn remote(rest: &str) -> String {
    // The login ends at the last `@`, because a password may contain an `@`. If the text before it
    // contains a character that normally ends the login, the password may be anywhere in the text.
    // Then the whole text is hidden.
    let (login, rest) = match rest.rfind('@') {
        Some(at) if rest[..at].contains(['?', ';', '/', '#']) => return HIDDEN.to_owned(),
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let login = login.map_or(String::new(), |login| match login.split_once(':') {
        Some((user, _)) if plain(user) => format!("{user}:{HIDDEN}@"),
        None if plain(login) => format!("{login}@"),
        _ => format!("{HIDDEN}@"),
    });
    // In URLs for SQL Server, semicolons may separate the parameters. After a `?`, a semicolon
    // belongs to a value.
    if let Some((place, parameters)) = rest.split_once(';')
        && !place.contains('?')
    {
        return format!("{login}{};{}", place_of(place), pairs(parameters));
    }
    let (place, query) = split_query(rest);
    let query = query.map_or(String::new(), |query| format!("?{}", self::query(query)));
    format!("{login}{}{query}", place_of(place))
}

/// Returns the hosts, the ports and the database of a URL. Hides each part that does not have the
/// expected form.
fn place_of(place: &str) -> String {
    let (hosts, database) = match place.split_once('/') {
        Some((hosts, database)) => (hosts, Some(database)),
        None => (place, None),
    };
    let port = |host: &str| {
        // An IPv6 address itself contains colons, so the port is searched only after the bracket.
        let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
        behind.rsplit_once(':').map(|(_, port)| port.to_owned())
    };
    let fits = |host: &str| {
        let digits = |port: String| port.chars().all(|c| c.is_ascii_digit());
        port(host).is_none_or(digits) && !host.contains(['%', '#', ' '])
    };
    let hosts = if hosts.split(',').all(fits) {
        hosts
    } else {
        HIDDEN
    };
    let database = database.map(|name| if plain(name) { name } else { HIDDEN });
    database.map_or_else(|| hosts.to_owned(), |name| format!("{hosts}/{name}"))
}

/// Returns whether a text contains only letters, digits, `_`, `-` and `.`.
fn plain(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    match text.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (text, None),
    }
}

fn with_query(text: &str) -> String {
    match split_query(text) {
        (place, Some(query)) => format!("{place}?{}", self::query(query)),
        (place, None) => place.to_owned(),
    }
}

/// Hides the secret parameters of a URL.
fn query(text: &str) -> String {
    list(text, '&')
}

/// Hides the secret values of a connection string, in which semicolons or spaces separate the
/// pairs.
fn pairs(text: &str) -> String {
    // Quoted values may contain text that looks like the next pair, so the whole text is hidden.
    if text.contains(['"', '\'', '{', '\\']) || !text.contains('=') {
        let shown = if text.is_empty() { "" } else { HIDDEN };
        return shown.to_owned();
    }
    list(text, if text.contains(';') { ';' } else { ' ' })
}

/// Returns the pairs of a list, up to and including the first pair that may be secret. Hides the
/// secret part of that pair and all text after it, which may belong to the secret value.
fn list(text: &str, between: char) -> String {
    let mut shown = Vec::new();
    let mut parts = text.split(between).map(str::trim);
    for part in parts.by_ref() {
        match pair(part) {
            Ok(pair) => shown.push(pair),
            Err(hidden) => {
                shown.push(hidden);
                break;
            }
        }
    }
    if parts.any(|part| !part.is_empty()) {
        shown.push(HIDDEN.to_owned());
    }
    shown.join(&between.to_string())
}

/// Returns the pair `key=value` unchanged if it is safe to show.
///
/// # Errors
/// Fails if the pair may be secret. The error contains the part of the pair that is safe to show.
fn pair(text: &str) -> Result<String, String> {
    let Some((key, value)) = text.split_once('=') else {
        return match text {
            "" => Ok(String::new()),
            _ => Err(HIDDEN.to_owned()),
        };
    };
    let known = key.trim().to_ascii_lowercase();
    // A value with other characters may contain the next pairs, including a password.
    let simple = plain(&value.trim().replace([':', ',', '/'], ""));
    if SHOWN.contains(&known.as_str()) && simple {
        Ok(text.to_owned())
    } else if SHOWN.contains(&known.as_str()) || NAMED.contains(&known.as_str()) {
        Err(format!("{key}={HIDDEN}"))
    } else {
        Err(HIDDEN.to_owned())
    }
}
