//! Detects SQL texts of an application that may change the session in a way that the store cannot
//! detect afterwards.

/// Words with which a statement can begin. A text that begins with any other word calls a
/// procedure.
const STATEMENTS: [&str; 22] = [
    "ALTER",
    "BEGIN",
    "COMMIT",
    "CREATE",
    "DECLARE",
    "DELETE",
    "DROP",
    "IF",
    "INSERT",
    "MERGE",
    "PRINT",
    "RAISERROR",
    "RETURN",
    "ROLLBACK",
    "SAVE",
    "SELECT",
    "SET",
    "THROW",
    "TRUNCATE",
    "UPDATE",
    "USE",
    "WITH",
];

/// Words that show that a text may change the session permanently. They call a procedure, or change
/// a setting whose value the server does not report, so that the store cannot check it.
const LINGERING: [&str; 9] = [
    "EXEC",
    "EXECUTE",
    "FMTONLY",
    "FORCEPLAN",
    "IDENTITY_INSERT",
    "NOEXEC",
    "PARSEONLY",
    "QUERY_GOVERNOR_COST_LIMIT",
    "STATISTICS",
];

/// Returns whether the text may call a procedure, create a temporary table, or change a setting
/// that the store cannot reset. A wrong `true` only costs a new connection.
pub(crate) fn may_linger(sql: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '#' | '@' | '$');
    let mut words = sql.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    let is_in = |list: &[&str], word: &str| list.iter().any(|one| one.eq_ignore_ascii_case(word));
    let lingers = |word: &str| {
        let shows_plans = word.to_ascii_uppercase().starts_with("SHOWPLAN_");
        word.starts_with('#') || shows_plans || is_in(&LINGERING, word)
    };
    let Some(first) = words.next() else {
        return false;
    };
    !is_in(&STATEMENTS, first) || lingers(first) || words.any(lingers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_on_tables_and_settings_that_are_set_back_leave_nothing() {
        for sql in [
            "INSERT INTO orders (id) VALUES (@P1)",
            "update [orders] set total = 0 where id = @P1",
            "  SELECT note FROM executions",
            "WITH a AS (SELECT 1 AS one) SELECT one FROM a",
            "SET LOCK_TIMEOUT 5",
            "USE tempdb",
            "",
        ] {
            assert!(!may_linger(sql), "{sql}");
        }
    }

    #[test]
    fn calls_temporary_tables_and_settings_without_a_way_back_may_linger() {
        for sql in [
            "EXEC sp_set_session_context @P1, @P2",
            "execute sp_getapplock @Resource = N'a'",
            "sp_getapplock N'a'",
            "DECLARE @g int; EXEC @g = sp_getapplock N'a'",
            "[dbo].[own_procedure] @P1",
            "SET IDENTITY_INSERT orders ON",
            "set statistics xml on",
            "SET SHOWPLAN_XML ON",
            "SET NOEXEC ON",
            "CREATE TABLE #own (id int)",
            "SELECT 1 AS one INTO ##all",
        ] {
            assert!(may_linger(sql), "{sql}");
        }
    }
}
