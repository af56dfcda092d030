//! The placeholders in the texts of statements.

use crate::query::{BEGIN, COMMIT, EACH, END, SOME, WITHIN};

/// SQL expression that returns the time of the database, in milliseconds since 1970. It is rounded
/// down, as all times are, and does not depend on the time zone of the session. The server reads
/// its clock once for each statement.
pub(crate) const DATABASE_CLOCK: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)";

/// Options of every table. Texts compare byte for byte. No two names that are equal for the server
/// differ, although it ignores spaces at the end of a text, because no name ends with a space.
const TABLE: &str =
    "ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC";

/// The five priorities as a table.
const LEVELS: &str = "(SELECT 4 AS priority UNION ALL SELECT 3 UNION ALL SELECT 2 UNION ALL SELECT \
                      1 UNION ALL SELECT 0)";

/// Names that begin with this are the store's. Otherwise the store could change the variables of a
/// session that belongs to the application.
const VARIABLE: &str = "@ratchet_";

/// Quotes a name for use in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The database and the prefix of a store's tables.
#[derive(Clone, Debug)]
pub(crate) struct TableNames {
    /// Empty if the tables are in the database of the connection.
    pub(crate) database: String,
    pub(crate) prefix: String,
}

impl TableNames {
    /// Returns the quoted name of a table.
    pub(crate) fn table(&self, name: &str) -> String {
        let table = quoted(&format!("{}_{name}", self.prefix));
        match &*self.database {
            "" => table,
            database => format!("{}.{table}", quoted(database)),
        }
    }

    /// Replaces the placeholders of names: `{schema}.jobs` by the name of the table, `{database}`
    /// by a text with the name of the database, and `{table}` by the options of a table.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut parts = text.split("{schema}.");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = match part.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
                Some(quoted) => quoted,
                None => {
                    let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    part.split_at(end.unwrap_or(part.len()))
                }
            };
            filled.push_str(&self.table(name));
            filled.push_str(rest);
        }
        filled
            .replace("{table}", TABLE)
            .replace("{database}", &format!("'{}'", self.database))
    }

    /// Replaces all placeholders in the text of a statement, and removes its comments. `now` is the
    /// SQL expression of the clock.
    ///
    /// - `BEGIN;` and `COMMIT` on lines of their own become [`BEGIN`] and [`COMMIT`].
    /// - `{rows @given (job id, seq bigint)}` becomes the rows of a table parameter, and
    ///   `{list @ids}` and `{names @names}` those of a list in a variable. The type `whole` is the
    ///   row itself, as JSON; `place` is the number of the row.
    /// - `{each $1 (<id>, <seq> + 1)}` is repeated for each row of a table parameter.
    /// - The text between `{some $1}` and `{end}` is only sent if the list `$1` is not empty. With
    ///   `{some $1 turn}`, a row of the table `$1` must have a value in the column `turn`.
    /// - `{turn job}` joins the row of `jobs` with that name with its row in `turns`, named `kept`.
    /// - `{within}` is true in transactions of the application.
    /// - `{hex id}` and `{json text}` collect ids or JSON values to such a list.
    /// - `{patience $2}` makes the statements after it wait only briefly for locks, unless `$2` is
    ///   true. `{patient}` restores the session.
    pub(crate) fn render(&self, file: &str, now: &str) -> String {
        let lines = file.lines().filter(|line| !line.starts_with("--"));
        let lines = lines.map(|line| match line {
            "BEGIN;" => BEGIN,
            "COMMIT;" | "COMMIT" => COMMIT,
            line => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = expand(&text)
            .replace("@@", "\u{3}")
            .replace('@', VARIABLE)
            .replace('\u{3}', "@@");
        self.fill(&text.replace("{now}", now))
    }
}

/// Replaces the placeholders that have arguments.
fn expand(text: &str) -> String {
    let mut expanded = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (word, behind) = after.split_once('}').unwrap_or((after, ""));
        expanded.push_str(before);
        match replacement(word) {
            Some(text) => expanded.push_str(&text),
            None => expanded.push_str(&format!("{{{word}}}")),
        }
        rest = behind;
    }
    expanded.push_str(rest);
    expanded
}

fn replacement(word: &str) -> Option<String> {
    let (kind, argument) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
    Some(match kind {
        "rows" => {
            let (rows, columns) = argument.split_once(" (")?;
            let columns = columns.trim_end_matches(')').split(',');
            let columns: Vec<String> = columns.map(column).collect();
            format!(
                "JSON_TABLE({rows}, '$[*]' COLUMNS ({}))",
                columns.join(", ")
            )
        }
        "each" => format!("{EACH}{}{EACH}", argument.trim_start_matches('$')),
        "list" => format!(
            "JSON_TABLE({argument}, '$[*]' COLUMNS (place FOR ORDINALITY, id CHAR(32) PATH '$'))"
        ),
        "some" => format!("{SOME}{}{SOME}", argument.trim_start_matches('$')),
        "end" => END.to_string(),
        "turn" => format!(
            "STRAIGHT_JOIN {{schema}}.turns AS kept FORCE INDEX (PRIMARY) \
               ON kept.route = {argument}.route AND kept.priority = {argument}.priority \
              AND kept.fair_key = {argument}.fair_key AND kept.turn = {argument}.turn \
              AND kept.job = {argument}.id"
        ),
        "names" => format!(
            "JSON_TABLE({argument}, '$[*]' COLUMNS (name {} PATH '$'))",
            sql_type("name")
        ),
        "hex" => collected(&format!("CONCAT('\"', HEX({argument}), '\"')")),
        "json" => collected(argument),
        "patience" => format!(
            "SET @wait = @@SESSION.innodb_lock_wait_timeout, \
             SESSION innodb_lock_wait_timeout = CASE WHEN {argument} \
             THEN @@SESSION.innodb_lock_wait_timeout ELSE 1 END;"
        ),
        "patient" => "SET SESSION innodb_lock_wait_timeout = @wait".to_owned(),
        "levels" => LEVELS.to_owned(),
        "within" => WITHIN.to_owned(),
        "nil" => "x'00000000000000000000000000000000'".to_owned(),
        _ => return None,
    })
}

/// Returns the definition of a column of `JSON_TABLE`.
fn column(definition: &str) -> String {
    let (name, kind) = definition
        .trim()
        .split_once(' ')
        .unwrap_or((definition, ""));
    if kind == "place" {
        return format!("`{name}` FOR ORDINALITY");
    }
    let path = match kind {
        "whole" => "$".to_owned(),
        _ => format!("$.{name}"),
    };
    format!("`{name}` {} PATH '{path}'", sql_type(kind))
}

fn sql_type(kind: &str) -> &str {
    match kind {
        "id" => "CHAR(32)",
        "name" => "VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "text" => "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "whole" => "JSON",
        number => number,
    }
}

fn collected(value: &str) -> String {
    format!("CONCAT('[', COALESCE(GROUP_CONCAT({value}), ''), ']')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> TableNames {
        TableNames {
            database: "app".to_owned(),
            prefix: "my".to_owned(),
        }
    }

    #[test]
    fn tables_have_the_prefix_and_the_database() {
        let text = "SELECT {schema}.jobs.id FROM {schema}.jobs, {schema}.`clock` {table}";
        let filled = names().fill(text);
        let start = "SELECT `app`.`my_jobs`.id FROM `app`.`my_jobs`, `app`.`my_clock` ENGINE";
        assert!(filled.starts_with(start), "{filled}");
    }

    #[test]
    fn placeholders_are_replaced_and_variables_are_the_stores() {
        let file = "-- A comment.\nSET @a = {now}, @b = @@wait_timeout;\nBEGIN;\n\
                    SELECT {hex x.id} INTO @a FROM {rows $1 (job id, key name)} AS x;\nCOMMIT";
        let text = names().render(file, "1");
        assert_eq!(
            text,
            format!(
                "SET @ratchet_a = 1, @ratchet_b = @@wait_timeout;\n{BEGIN}\n\
                 SELECT CONCAT('[', COALESCE(GROUP_CONCAT(CONCAT('\"', HEX(x.id), '\"')), ''), \
                 ']') INTO @ratchet_a FROM JSON_TABLE($1, '$[*]' COLUMNS (`job` CHAR(32) PATH \
                 '$.job', `key` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH \
                 '$.key')) AS x;\n{COMMIT}"
            )
        );
    }
}
