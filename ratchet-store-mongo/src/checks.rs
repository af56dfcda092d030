//! What cannot work is refused before the server is asked.

use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcernLevel, ReadPreference, SelectionCriteria,
};
use ratchet_core::Result;

use crate::config::{SCHEMES, misconfigured};

/// The most bytes of a database's name and of a collection's name with it.
const DATABASE_BYTES: usize = 63;
const NAMESPACE_BYTES: usize = 255;

pub(crate) fn check_scheme(url: &str) -> Result<()> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if SCHEMES.contains(&scheme) {
        return Ok(());
    }
    // Only a scheme is shown: the rest may have a password.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '+';
    Err(misconfigured(
        "the URL",
        if !scheme.is_empty() && scheme.chars().all(plain) {
            format!("has the scheme `{scheme}`, not `mongodb`")
        } else {
            "has no scheme; `mongodb://<user>:<password>@<host>/<database>` is meant".to_owned()
        },
    ))
}

/// Refuses a URL that asks for less than what ownership of jobs needs. What it does not say is set
/// for every collection.
pub(crate) fn check_concerns(options: &ClientOptions) -> Result<()> {
    let concern = options.write_concern.as_ref();
    if let Some(w) = concern.and_then(|concern| concern.w.as_ref())
        && *w != Acknowledgment::Majority
    {
        return Err(misconfigured(
            "the URL",
            "asks for another write concern than `w=majority`, with which acknowledged jobs can \
             be lost",
        ));
    }
    if concern.and_then(|concern| concern.journal) == Some(false) {
        return Err(misconfigured(
            "the URL",
            "says `journal=false`; that is Builder::journaled",
        ));
    }
    if concern.is_some_and(|concern| concern.w_timeout.is_some()) {
        return Err(misconfigured(
            "the URL",
            "says `wtimeoutMS`; that is Builder::deadline",
        ));
    }
    if let Some(concern) = &options.read_concern
        && concern.level != ReadConcernLevel::Majority
    {
        return Err(misconfigured(
            "the URL",
            "asks for another read concern than `readConcernLevel=majority`, which every read that \
             decides something has",
        ));
    }
    if let Some(SelectionCriteria::ReadPreference(preference)) = &options.selection_criteria
        && *preference != ReadPreference::Primary
    {
        return Err(misconfigured(
            "the URL",
            "asks for a read preference other than `primary`, with which jobs are seen too late",
        ));
    }
    if options.retry_writes == Some(false) || options.retry_reads == Some(false) {
        return Err(misconfigured(
            "the URL",
            "switches off the driver's retries, which an election needs",
        ));
    }
    Ok(())
}

pub(crate) fn check_database(name: &str) -> Result<()> {
    let problem = match name {
        "" => "is empty",
        "admin" | "local" | "config" => "is one that the server keeps to itself",
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
        _ if prefix.starts_with("system.") => {
            "begins with `system.`, which MongoDB keeps to itself"
        }
        _ if prefix.starts_with('.') => "begins with a dot",
        _ if longest > NAMESPACE_BYTES => {
            "makes names of more than 255 bytes together with the database's"
        }
        _ => return Ok(()),
    };
    Err(misconfigured("prefix", problem))
}
