//! Tests that check the text of every statement. The tests need no server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet_sql::Dialect;
use sqlparser::dialect::MsSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::dialect::SqlServer;
use crate::error::{GATE, NOT_ONE};
use crate::session::{self, Server, Session};
use crate::words::{DATABASE_CLOCK, Words};
use crate::{connection, migrate};

/// Properties of a server that is SQL Server and not Babelfish, for tests.
pub(crate) const SERVER: Server = Server {
    version: String::new(),
    user: String::new(),
    is_babelfish: false,
};

/// Parts of T-SQL that the parser does not know. Each entry contains the part, a replacement that
/// the parser accepts, and the reason.
const UNKNOWN: [(&str, &str, &str); 4] = [
    (
        "OPTION (FORCE ORDER, LOOP JOIN)",
        "",
        "the parser does not know hints on a whole statement",
    ),
    (
        "INNER LOOP JOIN",
        "INNER JOIN",
        "the parser does not know join hints",
    ),
    (
        "EXEC @got = ",
        "EXEC ",
        "the parser does not know the return value of a procedure",
    ),
    (
        "interval",
        "period",
        "in other dialects a literal begins with this word; here it is an ordinary name",
    ),
];

/// Functions that statements may call. All exist in SQL Server 2016. Only SERVERPROPERTY returns
/// the type `sql_variant`. Only functions in the expression of the clock return or compute times.
const FUNCTIONS: [&str; 20] = [
    "CAST",
    "COALESCE",
    "CONCAT",
    "CONVERT",
    "COUNT",
    "COUNT_BIG",
    "DATEDIFF_BIG",
    "DB_NAME",
    "MAX",
    "MIN",
    "NCHAR",
    "NEWID",
    "NULLIF",
    "OPENJSON",
    "POWER",
    "REPLACE",
    "ROW_NUMBER",
    "SCHEMA_ID",
    "SERVERPROPERTY",
    "SYSUTCDATETIME",
];

/// Words that may stand before an opening parenthesis and are not functions.
const OTHERS: [&str; 37] = [
    "AND",
    "APPLY",
    "AS",
    "BINARY",
    "CHAR",
    "CHECK",
    "DATETIME2",
    "DECIMAL",
    "EXCEPT",
    "EXEC",
    "EXISTS",
    "FROM",
    "IDENTITY",
    "IF",
    "IN",
    "INCLUDE",
    "INDEX",
    "JOIN",
    "KEY",
    "CLUSTERED",
    "NOT",
    "NVARCHAR",
    "ON",
    "OPTION",
    "OR",
    "OVER",
    "SELECT",
    "SET",
    "TABLE",
    "THEN",
    "TOP",
    "UNION",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
    "BY",
];

/// Words that no statement may contain. They belong to other SQL dialects or to later versions, or
/// the store avoids them.
const REFUSED: [&str; 25] = [
    "CONFLICT",
    "DATE",
    "DATETIME",
    "DATETIMEOFFSET",
    "FALSE",
    "FOR",
    "ILIKE",
    "LIMIT",
    "MERGE",
    "NEWSEQUENTIALID",
    "NOLOCK",
    "NULLS",
    "READUNCOMMITTED",
    "RETURNING",
    "ROWVERSION",
    "SKIP",
    "SMALLDATETIME",
    "SQL_VARIANT",
    "TABLOCK",
    "TABLOCKX",
    "TIME",
    "TIMESTAMP",
    "TRUE",
    "UNIQUEIDENTIFIER",
    "WAITFOR",
];

pub(super) fn words() -> Words {
    Words::new("a schema", DATABASE_CLOCK, Duration::from_secs(1), &SERVER)
}

/// Returns every text that the store sends to the server, with a name for messages.
fn texts() -> Vec<(String, String)> {
    let words = words();
    let statements = super::texts().into_iter();
    let mut texts: Vec<(String, String)> = statements
        .map(|(name, text)| {
            (
                name.to_owned(),
                words.render(&ratchet_sql::render(name, text)),
            )
        })
        .collect();
    for step in migrate::scripts("a schema", migrate::STEPS) {
        texts.push((format!("migration {}", step.version), step.sql));
    }
    let session = Session::new(Duration::from_secs(1));
    texts.push(("the setup of sessions".into(), session.setup));
    for text in session::QUESTIONS {
        texts.push(("a question to the server".into(), text.into()));
    }
    for text in [
        connection::BEGIN,
        connection::COMMIT_OWN,
        connection::COMMIT,
        connection::ROLL_BACK,
    ] {
        texts.push(("an end of a transaction".into(), text.into()));
    }
    texts.push((
        "the lock of migrations".into(),
        migrate::take_lock("N'a'", 1),
    ));
    texts.push(("its release".into(), migrate::release_lock("N'a'")));
    texts
}

fn parse(text: &str) -> Result<(), String> {
    let parsed = Parser::parse_sql(&MsSqlDialect {}, text);
    parsed.map(drop).map_err(|error| error.to_string())
}

/// Checks that the text is valid T-SQL, as far as the parser knows T-SQL.
pub(super) fn parses(text: &str) -> Result<(), String> {
    let words = UNKNOWN.iter();
    let known = words.fold(text.to_owned(), |text, (unknown, instead, _)| {
        text.replace(unknown, instead)
    });
    parse(text).or_else(|_| parse(&known))
}

/// Returns the tokens of a text. Omits spaces and comments.
fn tokens(name: &str, text: &str) -> Vec<Token> {
    match Tokenizer::new(&MsSqlDialect {}, text).tokenize() {
        Ok(tokens) => tokens
            .into_iter()
            .filter(|token| !matches!(token, Token::Whitespace(_)))
            .collect(),
        Err(error) => panic!("{name} is not valid T-SQL: {error}"),
    }
}

pub(super) fn every_statement() -> impl Iterator<Item = (&'static str, Vec<Token>)> {
    let (words, texts) = (words(), super::texts());
    texts.into_iter().map(move |(name, text)| {
        (
            name,
            tokens(name, &words.render(&ratchet_sql::render(name, text))),
        )
    })
}

/// Returns the word of a token in capital letters. Returns `None` if the token is quoted or is not
/// a word.
fn bare(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    }
}

fn is_word(token: Option<&Token>, text: &str) -> bool {
    matches!(token, Some(Token::Word(word)) if word.value.eq_ignore_ascii_case(text))
}

#[test]
fn every_text_is_of_the_language() {
    let mut needed: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, text) in texts() {
        assert!(
            !text.contains(['{', '}']),
            "{name} has an unknown placeholder"
        );
        if parse(&text).is_ok() {
            continue;
        }
        if let Err(error) = parses(&text) {
            panic!("{name} is not valid T-SQL: {error}\n{text}");
        }
        for (unknown, instead, _) in UNKNOWN {
            // The text with all replacements but this one.
            let others = UNKNOWN.iter().filter(|(other, ..)| *other != unknown);
            let without = others.fold(text.clone(), |text, (other, instead, _)| {
                text.replace(other, instead)
            });
            let is_needed =
                without.replace(unknown, instead) != without && parse(&without).is_err();
            *needed.entry(unknown).or_default() += usize::from(is_needed);
        }
    }
    for (unknown, _, reason) in UNKNOWN {
        let times = needed.get(unknown).copied().unwrap_or_default();
        assert!(
            times > 0,
            "the parser now accepts {unknown}; remove its entry ({reason})"
        );
    }
}

#[test]
fn every_function_is_an_old_one_and_no_word_is_of_another_language() {
    let mut called = BTreeSet::new();
    for (name, text) in texts() {
        let tokens = tokens(&name, &text);
        for (place, token) in tokens.iter().enumerate() {
            assert!(
                !matches!(token, Token::DoubleColon | Token::StringConcat),
                "{name} has {token}"
            );
            let Some(word) = bare(token) else {
                continue;
            };
            assert!(!REFUSED.contains(&word.as_str()), "{name} has {word}");
            assert!(
                !(word == "DISTINCT" && is_word(tokens.get(place + 1), "FROM")),
                "{name} uses IS DISTINCT FROM, which only SQL Server 2022 has"
            );
            let before = place.checked_sub(1).and_then(|before| tokens.get(before));
            // After a period or `AS`, the word is the name of a table or an alias, and its columns
            // follow in parentheses.
            let is_name = matches!(before, Some(Token::Period)) || is_word(before, "AS");
            let is_called = tokens.get(place + 1) == Some(&Token::LParen);
            if is_called && !is_name && !word.starts_with('@') && !OTHERS.contains(&word.as_str()) {
                assert!(
                    FUNCTIONS.contains(&word.as_str()),
                    "expected every function in FUNCTIONS, but {name} calls {word}"
                );
                called.insert(word);
            }
        }
    }
    let unused: Vec<&str> = FUNCTIONS
        .into_iter()
        .filter(|function| !called.contains(*function))
        .collect();
    assert!(unused.is_empty(), "nothing calls {unused:?}");
}

/// Checks that no query returns a column of the type `sql_variant`, because the driver panics at
/// such a column.
#[test]
fn no_sql_variant_is_selected() {
    let mut seen = 0;
    for (name, text) in texts() {
        let tokens = tokens(&name, &text);
        for (place, _) in tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| is_word(Some(token), "SERVERPROPERTY"))
        {
            seen += 1;
            let is_cast = place >= 2
                && is_word(tokens.get(place - 2), "CAST")
                && is_word(tokens.get(place + 4), "AS");
            let is_asked = is_word(tokens.get(place + 4), "IS");
            assert!(
                is_cast || is_asked,
                "{name} selects a property without a cast"
            );
        }
    }
    assert_eq!(seen, 3);
}

/// Checks that only the expression of the clock uses functions for times. DATEDIFF and DATEADD
/// compute with int, which overflows after 24 days of milliseconds or 35 minutes of microseconds.
/// The expression of the clock uses DATEDIFF_BIG with two UTC values of the type datetime2.
#[test]
fn times_are_numbers_but_in_the_clock() {
    let mut seen = 0;
    for (name, text) in texts() {
        let rest = text.replace(DATABASE_CLOCK, "0");
        seen += usize::from(rest != text);
        for word in tokens(&name, &rest).iter().filter_map(bare) {
            let of_times = [
                "DATEA",
                "DATED",
                "DATEP",
                "DATET",
                "GETUTC",
                "GETDATE",
                "SYSUTC",
                "SYSDATE",
                "CURRENT_T",
            ];
            assert!(
                !of_times.iter().any(|of_time| word.starts_with(of_time)),
                "{name} has {word}"
            );
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_statement_says_what_it_serves() {
    for (name, text) in super::texts() {
        assert!(text.starts_with("-- "), "{name} has no comment");
    }
}

#[test]
fn brackets_and_transactions_are_closed() {
    for (name, tokens) in every_statement() {
        let mut open = 0_i32;
        let (mut begun, mut ended) = (0, 0);
        for (place, token) in tokens.iter().enumerate() {
            match token {
                Token::LParen => open += 1,
                Token::RParen => open -= 1,
                _ => {}
            }
            assert!(open >= 0, "{name}");
            let next_is_transaction = is_word(tokens.get(place + 1), "TRANSACTION");
            begun += i32::from(is_word(Some(token), "BEGIN") && next_is_transaction);
            ended += i32::from(is_word(Some(token), "COMMIT") && next_is_transaction);
        }
        assert_eq!(open, 0, "{name}");
        assert_eq!(begun, ended, "{name}");
        assert!(begun < 2, "{name}");
    }
}

/// Checks that statements with several writes are atomic. Such a statement contains a transaction,
/// or its comment says that it runs in a transaction of the caller.
#[test]
fn what_writes_twice_is_in_a_transaction() {
    for ((name, tokens), (_, text)) in every_statement().zip(super::texts()) {
        let writes = tokens.windows(3).filter(|three| {
            let to_table = |token: &Token| is_word(Some(token), "a schema");
            let update = is_word(three.first(), "UPDATE") && to_table(&three[1]);
            let into = is_word(three.first(), "INSERT") && to_table(&three[2]);
            let from = is_word(three.first(), "DELETE") && to_table(&three[2]);
            update || into || from
        });
        let writes = writes.count();
        let own = tokens
            .windows(2)
            .any(|two| is_word(two.first(), "BEGIN") && is_word(two.get(1), "TRANSACTION"));
        let comment: String = text.lines().filter(|line| line.starts_with("--")).collect();
        let said = ["transaction", "locked", "begins again"]
            .iter()
            .any(|word| comment.contains(word));
        assert!(
            writes < 2 || own || said,
            "{name} writes {writes} times without a transaction"
        );
    }
}

/// Checks that `error.rs` knows each error that the store's statements throw.
#[test]
fn every_own_error_has_the_number_of_a_meaning() {
    let mut thrown = 0;
    for (name, text) in texts() {
        let tokens = tokens(&name, &text);
        for pair in tokens
            .windows(2)
            .filter(|pair| is_word(pair.first(), "THROW"))
        {
            let known = [GATE, NOT_ONE].map(|number| number.to_string());
            let is_known = matches!(&pair[1], Token::Number(number, _) if known.contains(number));
            assert!(is_known, "{name} throws {}", pair[1]);
            thrown += 1;
        }
    }
    assert!(thrown >= 4, "{thrown}");
}

/// Checks that the server never locks a whole table of jobs, because that would block all other
/// callers. The server would do so for a statement that needs 5,000 locks on one table.
#[test]
fn no_table_of_jobs_is_ever_locked_as_a_whole() {
    // No statement writes many rows of these tables.
    let few = [
        "migrations",
        "nodes",
        "pauses",
        "permits",
        "routes",
        "versions",
        "locks",
    ];
    let mut tables = BTreeSet::new();
    let scripts: String = migrate::scripts("s", migrate::STEPS)
        .into_iter()
        .map(|step| step.sql)
        .collect();
    for line in scripts.lines() {
        let made = line.strip_prefix("CREATE TABLE [s].");
        tables.extend(made.and_then(|rest| rest.split(' ').next()));
    }
    for table in tables {
        let off = format!("EXEC(N'ALTER TABLE [s].{table} SET (LOCK_ESCALATION = DISABLE)');");
        assert_eq!(
            scripts.contains(&off),
            !few.contains(&table),
            "{table}: expected lock escalation to be disabled unless statements write few rows"
        );
    }
}

/// Checks that a statement which deletes jobs needs fewer than 5,000 locks on a table. Each job has
/// one row and three index entries in `jobs`, and fewer in most other tables. Only the history of a
/// job may have more rows, and lock escalation is disabled for its table.
#[test]
fn deletes_are_of_few_jobs_at_once() {
    const ESCALATION: usize = 5_000;
    let entries = 1 + 3;
    let at_once = SqlServer::DELETES_AT_ONCE;
    assert!(
        at_once * entries < ESCALATION,
        "expected fewer rows than lock escalation needs, found \
         {at_once} jobs at once"
    );
}
