//! What opening makes, as commands to read or to run by hand.

use mongodb::bson::{Document, doc};

use crate::indexes::Index;

/// A step of Ratchet's collections and indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// The version that the collections have after it.
    pub version: u32,
    /// What it is called.
    pub name: &'static str,
    /// Commands for `mongosh`. They can be run again.
    pub script: String,
}

/// A collection that lacks something.
pub(crate) struct Missing<'a> {
    pub(crate) name: &'a str,
    pub(crate) exists: bool,
    pub(crate) indexes: Vec<&'a Index>,
}

impl<'a> Missing<'a> {
    /// A collection that does not exist.
    pub(crate) fn all((name, indexes): &'a (String, Vec<Index>)) -> Self {
        Self {
            name,
            exists: false,
            indexes: indexes.iter().collect(),
        }
    }

    fn commands(&self) -> Vec<Document> {
        let create = (!self.exists).then(|| doc! { "create": self.name });
        let indexes: Vec<Document> = self.indexes.iter().map(|index| index.document()).collect();
        let make =
            (!indexes.is_empty()).then(|| doc! { "createIndexes": self.name, "indexes": indexes });
        create.into_iter().chain(make).collect()
    }
}

impl Migration {
    pub(crate) fn new(prefix: &str, version: u32, missing: &[Missing<'_>]) -> Self {
        let mut commands: Vec<Document> = missing.iter().flat_map(Missing::commands).collect();
        commands.push(doc! {
            "update": format!("{prefix}meta"),
            "updates": [{
                "q": { "_id": "ratchet" },
                "u": { "$max": { "version": i64::from(version) } },
                "upsert": true,
            }],
        });
        let lines = commands
            .into_iter()
            .map(|command| format!("db.runCommand({command});\n"));
        Self {
            version,
            name: "collections",
            script: lines.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexes::plan;

    #[test]
    fn scripts_make_what_is_missing_in_order() {
        let plan = plan("p_");
        let jobs = &plan[0];
        let lacking = Missing {
            exists: true,
            indexes: vec![&jobs.1[0]],
            ..Missing::all(jobs)
        };
        let script = Migration::new("p_", 1, &[lacking, Missing::all(&plan[2])]).script;
        let lines: Vec<&str> = script.lines().collect();
        let begins = [
            r#"db.runCommand({ "createIndexes": "p_jobs", "indexes": [{ "name": "claim""#,
            r#"db.runCommand({ "create": "p_keys" });"#,
            r#"db.runCommand({ "update": "p_meta", "updates": [{ "q": { "_id": "ratchet" }"#,
        ];
        assert_eq!(lines.len(), begins.len(), "{script}");
        for (line, begin) in lines.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
    }
}
