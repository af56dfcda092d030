//! Checks the settings that can be checked without a server.

use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcernLevel, ReadPreference, SelectionCriteria,
};
use ratchet_core::Result;

use crate::config::{SCHEMES, misconfigured};

/// Maximum length of a database name, in bytes.
const DATABASE_BYTES: usize = 63;
/// Maximum length of a database name, a dot and a collection name together, in bytes.
const NAMESPACE_BYTES: usize = 255;

pub(crate) fn check_scheme(url: &str) -> Result<()> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if SCHEMES.contains(&scheme) {
        return Ok(());
    }
    // Shows only the scheme: the rest may contain a password.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '+';
    Err(misconfigured(
        "the URL",
        if !scheme.is_empty() && scheme.chars().all(plain) {
            format!("has the scheme `{scheme}`; expected `mongodb` or `mongodb+srv`")
        } else {
            "has no scheme; expected `mongodb://<user>:<password>@<host>/<database>`".to_owned()
        },
    ))
}

/// Fails if the URL sets an option that could lose jobs or return stale jobs, or that disables the
/// driver's retries. Also fails if the URL sets an option for which the builder has a setter. The
/// store later sets the concerns that the URL omits, for every collection.
pub(crate) fn check_concerns(options: &ClientOptions) -> Result<()> {
    let concern = options.write_concern.as_ref();
    if let Some(w) = concern.and_then(|concern| concern.w.as_ref())
        && *w != Acknowledgment::Majority
    {
        return Err(misconfigured(
            "the URL",
            "sets a write concern other than `w=majority`, so acknowledged jobs could be lost",
        ));
    }
    if concern.and_then(|concern| concern.journal) == Some(false) {
        return Err(misconfigured(
            "the URL",
            "sets `journal=false`; use Builder::journaled instead",
        ));
    }
    if concern.is_some_and(|concern| concern.w_timeout.is_some()) {
        return Err(misconfigured(
            "the URL",
            "sets `wtimeoutMS`; use Builder::deadline instead",
        ));
    }
    if let Some(concern) = &options.read_concern
        && concern.level != ReadConcernLevel::Majority
    {
        return Err(misconfigured(
            "the URL",
            "sets a read concern other than `readConcernLevel=majority`, which Ratchet needs",
        ));
    }
    if let Some(SelectionCriteria::ReadPreference(preference)) = &options.selection_criteria
        && *preference != ReadPreference::Primary
    {
        return Err(misconfigured(
            "the URL",
            "sets a read preference other than `primary`, so reads could return stale jobs",
        ));
    }
    if options.retry_writes == Some(false) || options.retry_reads == Some(false) {
        return Err(misconfigured(
            "the URL",
            "disables the driver's retries, which the store needs during an election",
        ));
    }
    Ok(())
}

pub(crate) fn check_database(name: &str) -> Result<()> {
    let problem = match name {
        "" => "is empty",
        "admin" | "local" | "config" => "is reserved by the server",
        _ if name.len() > DATABASE_BYTES => "has a name of more than 63 bytes",
        _ if name.contains([
            '/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?', '\0',
        ]) =>
        {
            "has a character in its name that MongoDB does not allow"
        }
        _ => return Ok(()),
    };
    Err(misconfigured("database", problem))
}

pub(crate) fn check_prefix(prefix: &str, longest: usize) -> Result<()> {
    let problem = match prefix {
        _ if prefix.contains(['$', '\0']) => "has a `$` or a NUL",
        _ if prefix.starts_with("system.") => "begins with `system.`, which MongoDB reserves",
        _ if prefix.starts_with('.') => "begins with a dot",
        _ if longest > NAMESPACE_BYTES => {
            "makes a name of more than 255 bytes for a collection, including the name of the \
             database"
        }
        _ => return Ok(()),
    };
    Err(misconfigured("prefix", problem))
}
