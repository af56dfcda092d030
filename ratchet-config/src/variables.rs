//! Reads the environment variables that set keys. Their names have the form
//! `RATCHET_<SECTION>__<KEY>`.

use std::ffi::OsString;

use crate::SECTIONS;
use crate::load::Entry;
use crate::origin::Origin;
use crate::problem::{Place, Problem};
use crate::value::Raw;

/// Environment variable that contains the path of the configuration file.
pub const FILE_VARIABLE: &str = "RATCHET_CONFIG";

/// Returns an entry for each environment variable that sets a key. Returns a problem for each such
/// variable whose value is not Unicode. Ignores all other variables.
pub(crate) fn read(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> (Vec<Entry<Raw>>, Vec<Problem>) {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some((name, path)) = name.to_str().and_then(|name| Some((name, path_of(name)?))) else {
            continue;
        };
        let origin = Origin::Variable(name.to_owned());
        match value.into_string() {
            Ok(text) => entries.push(Entry::new(path, Raw::Text(text), origin)),
            Err(_) => problems.push(Problem {
                places: vec![Place::unseen(path.join("."), origin)],
                rule: "is not Unicode".to_owned(),
            }),
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    (entries, problems)
}

/// Returns the path of the key that a variable sets. Returns `None` if the name does not contain a
/// section and a key of Ratchet.
fn path_of(name: &str) -> Option<Vec<String>> {
    let parts = name.strip_prefix("RATCHET_")?.split("__");
    let path: Vec<String> = parts.map(str::to_ascii_lowercase).collect();
    let ours = path.len() > 1 && SECTIONS.contains(&path[0].as_str());
    ours.then_some(path)
}
