//! Reads the environment: `RATCHET_<SECTION>__<KEY>`.

use std::ffi::OsString;

use crate::SECTIONS;
use crate::load::Entry;
use crate::origin::Origin;
use crate::problem::{Place, Problem};
use crate::value::Raw;

/// The environment variable that names the configuration file.
pub const FILE_VARIABLE: &str = "RATCHET_CONFIG";

/// Returns the variables that set a key, and a problem for each that cannot be read. Ignores all
/// other variables.
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

/// Returns the path of the key that a variable sets, if the path begins with one of our sections.
fn path_of(name: &str) -> Option<Vec<String>> {
    let parts = name.strip_prefix("RATCHET_")?.split("__");
    let path: Vec<String> = parts.map(str::to_ascii_lowercase).collect();
    let ours = path.len() > 1 && SECTIONS.contains(&path[0].as_str());
    ours.then_some(path)
}
