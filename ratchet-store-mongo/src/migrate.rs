//! The migration that connecting applies, as commands to read or to run by hand.

use mongodb::bson::{Bson, Document, doc};

use crate::indexes::Index;

/// A migration that creates or changes Ratchet's collections and indexes.
///
/// ```
/// use ratchet_store_mongo::MongoStore;
///
/// for step in MongoStore::migrations("jobs.") {
///     println!("{step:?}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Version of the schema after this migration.
    pub version: u32,
    /// The name of the migration.
    pub name: &'static str,
    /// Script for `mongosh`. The script stops at the first error, and it is safe to run again.
    pub script: String,
}

/// A collection that does not exist, or that exists and lacks indexes.
pub(crate) struct Missing<'a> {
    pub(crate) name: &'a str,
    pub(crate) exists: bool,
    pub(crate) indexes: Vec<&'a Index>,
}

impl<'a> Missing<'a> {
    /// Describes a collection that does not exist, and so lacks all its indexes.
    pub(crate) fn all((name, indexes): &'a (String, Vec<Index>)) -> Self {
        Self {
            name,
            exists: false,
            indexes: indexes.iter().collect(),
        }
    }

    fn commands(&self) -> impl Iterator<Item = String> + use<> {
        // The collection may exist when the script runs: another program may have created it, or
        // the script may run for the second time.
        let create = doc! { "create": self.name };
        let create = (!self.exists).then(|| format!("  run({create}, NAMESPACE_EXISTS);\n"));
        let indexes: Vec<Document> = self.indexes.iter().map(|index| index.document()).collect();
        let make =
            (!indexes.is_empty()).then(|| doc! { "createIndexes": self.name, "indexes": indexes });
        create.into_iter().chain(make.as_ref().map(run))
    }
}

fn run(command: &Document) -> String {
    format!("  run({command});\n")
}

/// First part of each script. It defines the function `run`, which runs a command and throws an
/// error if the command fails. The error ends the script.
const BEGIN: &str = "  const NAMESPACE_EXISTS = 48;
  const run = (command, fine) => {
    let done;
    try {
      done = database.runCommand(command);
    } catch (error) {
      done = { ok: 0, code: error.code, errmsg: error.message };
    }
    if (done.ok === 1 ? done.writeErrors || done.writeConcernError : done.code !== fine) {
      throw new Error(JSON.stringify(done));
    }
  };
";

impl Migration {
    /// Builds the migration that creates the missing collections and indexes. `database` names the
    /// database. If it is `None`, the script uses the current database of `mongosh`.
    pub(crate) fn new(
        database: Option<&str>,
        prefix: &str,
        version: u32,
        missing: &[Missing<'_>],
    ) -> Self {
        let database = match database {
            Some(name) => format!("db.getSiblingDB({})", Bson::String(name.to_owned())),
            None => "db".to_owned(),
        };
        let mut script = format!("(() => {{\n  const database = {database};\n{BEGIN}");
        script.extend(missing.iter().flat_map(Missing::commands));
        script += &run(&doc! {
            "update": format!("{prefix}meta"),
            "updates": [{
                "q": { "_id": "ratchet" },
                "u": { "$max": { "version": i64::from(version) } },
                "upsert": true,
            }],
        });
        script += "})();\n";
        Self {
            version,
            name: "collections",
            script,
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
        let missing = [lacking, Missing::all(&plan[2])];
        let script = Migration::new(Some("jobs"), "p_", 1, &missing).script;
        let lines: Vec<&str> = script.lines().collect();
        // The script is one expression, so that no tool continues after an error in it.
        assert_eq!(lines.first(), Some(&"(() => {"));
        assert_eq!(lines.last(), Some(&"})();"));
        assert!(script.contains(r#"database = db.getSiblingDB("jobs");"#));
        let commands = lines.iter().filter(|line| line.starts_with("  run("));
        let commands: Vec<&&str> = commands.collect();
        let begins = [
            r#"  run({ "createIndexes": "p_jobs", "indexes": [{ "name": "claim""#,
            r#"  run({ "create": "p_keys" }, NAMESPACE_EXISTS);"#,
            r#"  run({ "createIndexes": "p_keys", "indexes": [{ "name": "until""#,
            r#"  run({ "update": "p_meta", "updates": [{ "q": { "_id": "ratchet" }"#,
        ];
        assert_eq!(commands.len(), begins.len(), "{script}");
        for (line, begin) in commands.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
        let script = Migration::new(None, "p_", 1, &missing).script;
        assert!(script.contains("  const database = db;\n"));
    }
}
