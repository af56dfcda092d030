//! Binds the arguments of statements, and writes them into the text.
//!
//! The store sends texts, not prepared statements: a text can have several parts, which the server
//! runs in one round trip, and MySQL keeps no plans for prepared statements. Each argument becomes
//! a literal. A list becomes the operands of `IN`, and a table a JSON text for `JSON_TABLE`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use ratchet_core::JobState;
use ratchet_sql::{Argument, Column, List, each_list};
use uuid::Uuid;

/// Line of a text at which its transaction begins, if it is not part of another one.
pub(crate) const BEGIN: &str = "\u{1}";
/// Line of a text at which its transaction ends.
pub(crate) const COMMIT: &str = "\u{2}";
/// Begins and ends the part of a text that is repeated for each row of a table. The number of the
/// table's parameter comes first.
pub(crate) const EACH: char = '\u{4}';

/// Begins a part of a text that is only sent if a parameter has a value. The number of the
/// parameter follows, for a table also the name of a column, and then this character again.
pub(crate) const SOME: char = '\u{6}';
/// Ends such a part.
pub(crate) const END: char = '\u{7}';

/// Comment of a text that must not be divided, because its limit would hold for each part, or
/// because it returns the numbers of the rows.
pub(crate) const UNDIVIDED: &str = "/* undivided */";

/// Becomes `TRUE` in a transaction of the application, and otherwise `FALSE`.
pub(crate) const WITHIN: &str = "\u{5}";

/// The session that a text is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// A connection of the store, with the settings of the store.
    Own,
    /// A connection of the application's pool, whose session may have other settings.
    Pool,
    /// A transaction of the application, whose snapshot may be older than the rows it has locked.
    Transaction,
}

/// A statement and its arguments.
#[derive(Clone)]
pub(crate) struct Query {
    text: Arc<str>,
    /// Number of parameters of the statement.
    parameters: usize,
    arguments: Vec<Bound>,
}

#[derive(Clone)]
enum Bound {
    /// A number or another text that is part of the statement as it is.
    Plain(String),
    Text(String),
    Texts(Vec<String>),
    Table(Vec<TableRow>),
}

/// A row of a table, as a JSON object, and the id in its first column, if that has ids.
#[derive(Clone)]
struct TableRow {
    id: Option<Uuid>,
    json: String,
    /// The names and the values of the columns. Empty if the statement does not repeat a part for
    /// each row.
    values: Vec<(&'static str, Bound)>,
}

impl Query {
    pub(crate) const fn new(text: Arc<str>, parameters: usize) -> Self {
        Self {
            text,
            parameters,
            arguments: Vec::new(),
        }
    }

    fn with(mut self, bound: Bound) -> Self {
        self.arguments.push(bound);
        self
    }

    /// Returns the text to send. `begin` and `commit` replace the lines at which the transaction of
    /// the text begins and ends.
    pub(crate) fn render(&self, session: Session, begin: &str, commit: &str) -> String {
        debug_assert_eq!(self.arguments.len(), self.parameters, "{}", self.text);
        let mut out = String::with_capacity(self.text.len() + self.size() * 2);
        let mut rest = &*self.text;
        while let Some(at) = rest.find(['$', '\u{1}', '\u{2}', '\u{5}', EACH, SOME, END]) {
            let (before, found) = rest.split_at(at);
            out.push_str(before);
            if let Some(behind) = found.strip_prefix(END) {
                rest = behind;
                continue;
            }
            if let Some(some) = found.strip_prefix(SOME) {
                let (parameter, part) = some.split_once(SOME).unwrap_or((some, ""));
                rest = match self.has_values(parameter) {
                    true => part,
                    false => part.split_once(END).map_or("", |(_, behind)| behind),
                };
                continue;
            }
            if let Some(each) = found.strip_prefix(EACH) {
                let (part, behind) = each.split_once(EACH).unwrap_or((each, ""));
                self.repeat(part, session, &mut out);
                rest = behind;
                continue;
            }
            let digits = found[1..].bytes().take_while(u8::is_ascii_digit).count();
            let (mark, behind) = found.split_at(1 + digits);
            match (mark.as_bytes()[0], mark[1..].parse::<usize>()) {
                (1, _) => out.push_str(begin),
                (2, _) => out.push_str(commit),
                (5, _) => true_or_false(session == Session::Transaction, &mut out),
                (_, Ok(number)) => match self.arguments.get(number - 1) {
                    Some(bound) => bound.write(session, &mut out),
                    None => out.push_str("NULL"),
                },
                (_, Err(_)) => out.push('$'),
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }

    /// Returns whether a list is not empty, or whether a row of a table has a value in a column.
    fn has_values(&self, parameter: &str) -> bool {
        let (number, column) = parameter.split_once(' ').unwrap_or((parameter, ""));
        let place = number.parse::<usize>().ok();
        match place.and_then(|place| self.arguments.get(place.checked_sub(1)?)) {
            Some(Bound::Table(rows)) => {
                let missing = format!("\"{column}\":null");
                rows.iter().any(|row| !row.json.contains(&missing))
            }
            Some(Bound::Texts(texts)) => !texts.is_empty(),
            Some(Bound::Plain(operands)) => operands != EMPTY,
            Some(Bound::Text(_)) => true,
            None => false,
        }
    }

    /// Writes `part` once for each row of a table, with the values of the row in the place of their
    /// names, such as `<id>`. The part begins with the number of the table's parameter.
    fn repeat(&self, part: &str, session: Session, out: &mut String) {
        let (number, part) = part.split_once(' ').unwrap_or((part, ""));
        let place = number
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(1));
        let Some(Bound::Table(rows)) = place.and_then(|place| self.arguments.get(place)) else {
            return;
        };
        for (index, row) in rows.iter().enumerate() {
            out.push_str(if index > 0 { ",\n" } else { "" });
            let mut rest = part;
            while let Some((before, after)) = rest.split_once('<') {
                let (name, behind) = after.split_once('>').unwrap_or((after, ""));
                out.push_str(before);
                match row.values.iter().find(|(column, _)| *column == name) {
                    Some((_, value)) => value.write(session, out),
                    None => out.push_str("NULL"),
                }
                rest = behind;
            }
            out.push_str(rest);
        }
    }

    /// Returns whether the text has a transaction of its own, unless it is part of another one.
    pub(crate) fn has_transaction(&self) -> bool {
        self.text.contains(BEGIN)
    }

    /// Returns about how many bytes the arguments have.
    pub(crate) fn size(&self) -> usize {
        self.arguments.iter().map(Bound::size).sum()
    }

    /// Divides the first table of the statement, so that no part has more than `limit` bytes,
    /// unless a single row has. Other tables keep the rows whose id is that of a row of the part.
    /// Returns a statement with the comment [`UNDIVIDED`] as it is.
    pub(crate) fn divided(&self, limit: usize) -> Vec<Self> {
        let tables = |bound: &Bound| matches!(bound, Bound::Table(_));
        let first = self.arguments.iter().position(tables);
        let Some(first) = first.filter(|_| !self.text.contains(UNDIVIDED)) else {
            return vec![self.clone()];
        };
        let Bound::Table(rows) = &self.arguments[first] else {
            return vec![self.clone()];
        };
        let mut parts: Vec<Vec<TableRow>> = vec![Vec::new()];
        let mut size = 0;
        for row in rows {
            if size + row.size() > limit && size > 0 {
                parts.push(Vec::new());
                size = 0;
            }
            size += row.size();
            if let Some(part) = parts.last_mut() {
                part.push(row.clone());
            }
        }
        let part = |rows: Vec<TableRow>| {
            let mut part = self.clone();
            for (place, bound) in part.arguments.iter_mut().enumerate() {
                if let Bound::Table(others) = bound
                    && place != first
                {
                    let ids: std::collections::HashSet<Option<Uuid>> =
                        rows.iter().map(|row| row.id).collect();
                    others.retain(|other| ids.contains(&other.id));
                }
            }
            part.arguments[first] = Bound::Table(rows);
            part
        };
        parts.into_iter().map(part).collect()
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the arguments, which may be secret.
        f.debug_tuple("Query").field(&self.text).finish()
    }
}

impl TableRow {
    fn size(&self) -> usize {
        let values = self.values.iter().map(|(_, value)| value.size() + 2);
        self.json.len() + values.sum::<usize>()
    }
}

impl Bound {
    fn size(&self) -> usize {
        match self {
            Self::Plain(text) | Self::Text(text) => text.len(),
            Self::Texts(texts) => texts.iter().map(|text| text.len() + 3).sum(),
            Self::Table(rows) => rows.iter().map(|row| row.size() + 1).sum(),
        }
    }

    fn write(&self, session: Session, out: &mut String) {
        match self {
            Self::Plain(text) => out.push_str(text),
            Self::Text(text) => session.write(text, out),
            Self::Texts(texts) if texts.is_empty() => out.push_str(EMPTY),
            Self::Texts(texts) => {
                for (place, text) in texts.iter().enumerate() {
                    out.push_str(if place > 0 { ", " } else { "" });
                    session.write(text, out);
                }
            }
            Self::Table(rows) => {
                let rows: Vec<&str> = rows.iter().map(|row| row.json.as_str()).collect();
                session.write(&format!("[{}]", rows.join(",")), out);
            }
        }
    }
}

impl Session {
    /// Appends a text as a literal. On connections of the store, a backslash escapes, and texts are
    /// UTF-8 with the collation of the tables. For other sessions, writes the text in hexadecimal
    /// digits, which every session reads in the same way.
    fn write(self, text: &str, out: &mut String) {
        if self != Self::Own {
            out.push_str("(_utf8mb4 x'");
            push_hex(text.as_bytes(), out);
            out.push_str("' COLLATE utf8mb4_bin)");
            return;
        }
        out.push('\'');
        let mut rest = text;
        while let Some(at) = rest.find(['\'', '\\', '\0']) {
            let (before, found) = rest.split_at(at);
            out.push_str(before);
            out.push_str(match found.as_bytes()[0] {
                b'\'' => "''",
                0 => "\\0",
                _ => "\\\\",
            });
            rest = &found[1..];
        }
        out.push_str(rest);
        out.push('\'');
    }
}

fn true_or_false(value: bool, out: &mut String) {
    out.push_str(if value { "TRUE" } else { "FALSE" });
}

fn push_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
}

impl ratchet_sql::Query for Query {
    fn argument(self, argument: Argument<'_>) -> Self {
        let bound = match argument {
            Argument::Bool(value) => Bound::Plain(literal(&value)),
            Argument::Small(value) => Bound::Plain(literal(&value)),
            Argument::Int(value) => Bound::Plain(literal(&value)),
            Argument::Big(value) => Bound::Plain(literal(&value)),
            Argument::Uuid(value) => Bound::Plain(literal(&value)),
            Argument::Text(text) => Bound::Text(text.to_owned()),
            Argument::List(List::Str(texts)) => {
                Bound::Texts(texts.iter().map(|text| (*text).to_owned()).collect())
            }
            Argument::List(List::String(texts)) => Bound::Texts(texts.to_vec()),
            Argument::List(list) => Bound::Plain(operands(list)),
        };
        self.with(bound)
    }

    fn any_of(self, numbers: Option<&[i32]>) -> Self {
        let list = List::Int(numbers.unwrap_or_default());
        self.with(Bound::Plain(literal(&numbers.is_some())))
            .with(Bound::Plain(operands(list)))
    }

    fn states(self, states: &[JobState]) -> Self {
        let codes: Vec<i16> = states.iter().map(|state| state.code().into()).collect();
        self.with(Bound::Plain(operands(List::Small(&codes))))
    }

    fn table(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        let repeats = self.text.contains(EACH);
        self.with(Bound::Table(rows(columns, repeats)))
    }

    /// Binds the first value of each column, or NULL if a column is empty.
    fn row(self, columns: &[(&'static str, &dyn Column)]) -> Self {
        columns.iter().fold(self, |query, (_, column)| {
            query.with(value(column.list(), 0))
        })
    }
}

/// Returns the value at this place of a list, or NULL if the list is shorter.
fn value(list: List<'_>, place: usize) -> Bound {
    match list {
        List::Str(texts) => optional(texts.get(place).copied()),
        List::String(texts) => optional(texts.get(place).map(String::as_str)),
        List::OptStr(texts) => optional(texts.get(place).copied().flatten()),
        List::OptString(texts) => optional(texts.get(place).and_then(Option::as_deref)),
        list => Bound::Plain(each_list!(list, values => values
            .get(place)
            .map_or_else(|| "NULL".to_owned(), literal))),
    }
}

fn optional(text: Option<&str>) -> Bound {
    match text {
        Some(text) => Bound::Text(text.to_owned()),
        None => Bound::Plain("NULL".to_owned()),
    }
}

/// The operand of `IN` for an empty list, to which nothing is equal.
const EMPTY: &str = "NULL";

/// Returns a list of numbers or ids as the operands of `IN`.
fn operands(list: List<'_>) -> String {
    let operands: Vec<String> = each_list!(list, values => values.iter().map(literal).collect());
    match operands.is_empty() {
        true => EMPTY.to_owned(),
        false => operands.join(","),
    }
}

fn literal(cell: &impl Cell) -> String {
    let mut out = String::new();
    cell.literal(&mut out);
    out
}

/// Returns a table as JSON objects. Long texts come last in each object, because the server looks
/// for each column from the beginning of the object.
/// If the statement repeats a part for each row, the rows are only written there, so they need no
/// JSON.
fn rows(columns: &[(&'static str, &dyn Column)], repeats: bool) -> Vec<TableRow> {
    let mut columns: Vec<(&'static str, List<'_>)> = columns
        .iter()
        .map(|(name, column)| (*name, column.list()))
        .collect();
    let first = columns.first().map(|(_, list)| *list);
    columns.sort_by_key(|(_, list)| matches!(list, List::Str(_) | List::OptStr(_)));
    let count = columns.iter().map(|(_, list)| list.len()).max();
    let row = |place: usize| {
        if repeats {
            let values = columns
                .iter()
                .map(|(name, list)| (*name, value(*list, place)));
            return TableRow {
                id: None,
                json: String::new(),
                values: values.collect(),
            };
        }
        let mut json = String::from("{");
        for (index, (name, list)) in columns.iter().enumerate() {
            let _ = write!(json, "{}\"{name}\":", if index > 0 { "," } else { "" });
            each_list!(*list, values => match values.get(place) {
                Some(cell) => cell.json(&mut json),
                None => json.push_str("null"),
            });
        }
        json.push('}');
        let id = match first {
            Some(List::Uuid(ids)) => ids.get(place).copied(),
            _ => None,
        };
        TableRow {
            id,
            json,
            values: Vec::new(),
        }
    };
    (0..count.unwrap_or_default()).map(row).collect()
}

/// A value that can be an element of a list or a table.
trait Cell {
    /// Appends the value to `out`, as JSON.
    fn json(&self, out: &mut String);
    /// Appends the value to `out`, as part of a statement.
    fn literal(&self, out: &mut String);
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Cell for $type {
            fn json(&self, out: &mut String) {
                // Writing to a string cannot fail.
                let _ = write!(out, "{self}");
            }

            fn literal(&self, out: &mut String) {
                self.json(out);
            }
        }
    )*};
}

numbers! { i16 i32 i64 }

impl Cell for bool {
    fn json(&self, out: &mut String) {
        out.push(if *self { '1' } else { '0' });
    }

    fn literal(&self, out: &mut String) {
        true_or_false(*self, out);
    }
}

impl Cell for Uuid {
    fn json(&self, out: &mut String) {
        let _ = write!(out, "\"{}\"", self.simple());
    }

    fn literal(&self, out: &mut String) {
        let _ = write!(out, "x'{}'", self.simple());
    }
}

impl Cell for &str {
    fn json(&self, out: &mut String) {
        // A text can always be encoded as JSON.
        out.push_str(&serde_json::to_string(self).unwrap_or_default());
    }

    fn literal(&self, out: &mut String) {
        Session::Pool.write(self, out);
    }
}

impl Cell for String {
    fn json(&self, out: &mut String) {
        self.as_str().json(out);
    }

    fn literal(&self, out: &mut String) {
        self.as_str().literal(out);
    }
}

impl<T: Cell> Cell for Option<T> {
    fn json(&self, out: &mut String) {
        match self {
            Some(cell) => cell.json(out),
            None => out.push_str("null"),
        }
    }

    fn literal(&self, out: &mut String) {
        match self {
            Some(cell) => cell.literal(out),
            None => out.push_str("NULL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_sql::Query as _;

    use super::*;

    fn query(text: &str, parameters: usize) -> Query {
        Query::new(text.into(), parameters)
    }

    #[test]
    fn arguments_become_literals() {
        let ids = vec![Uuid::nil(), Uuid::max()];
        let none: Vec<i32> = Vec::new();
        let query = query("$1 $2 $3 IN ($4) IN ($5) IN ($6) '$[*]'", 6)
            .bind(true)
            .bind(None::<i64>)
            .bind("it's \\")
            .bind(&ids)
            .bind(&none)
            .bind(&vec!["a", "b'"]);
        let (nil, max) = ("0".repeat(32), "f".repeat(32));
        assert_eq!(
            query.render(Session::Own, "", ""),
            format!(
                "TRUE NULL 'it''s \\\\' IN (x'{nil}',x'{max}') IN (NULL) IN ('a', 'b''') '$[*]'"
            )
        );
        assert!(
            query
                .render(Session::Pool, "", "")
                .contains("(_utf8mb4 x'69742773205c' COLLATE utf8mb4_bin)")
        );
    }

    #[test]
    fn tables_are_json_with_long_texts_last() {
        let (ids, texts, numbers) = (vec![Uuid::nil()], vec!["a\"\n"], vec![Some(5_i64)]);
        let query = query("$1", 1).table(&[("job", &ids), ("text", &texts), ("number", &numbers)]);
        let id = "0".repeat(32);
        assert_eq!(
            query.render(Session::Own, "", ""),
            format!("'[{{\"job\":\"{id}\",\"number\":5,\"text\":\"a\\\\\"\\\\n\"}}]'")
        );
    }

    #[test]
    fn a_divided_table_keeps_the_rows_of_the_same_ids_together() {
        let ids: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
        let texts = vec!["x".repeat(60); 3];
        let (tagged, tags) = (vec![ids[0], ids[2]], vec!["one", "three"]);
        let query = query("$1 $2", 2)
            .table(&[("id", &ids), ("text", &texts)])
            .table(&[("job", &tagged), ("tag", &tags)]);
        let parts: Vec<String> = query
            .divided(250)
            .iter()
            .map(|part| part.render(Session::Own, "", ""))
            .collect();
        assert_eq!(parts.len(), 2);
        assert!(parts[0].contains("one") && !parts[0].contains("three"));
        assert!(parts[1].contains("three") && !parts[1].contains("one"));
        assert_eq!(query.divided(1).len(), 3);
    }

    #[test]
    fn a_statement_says_that_it_is_not_divided() {
        let numbers: Vec<i64> = (0..100).collect();
        let parts = |text: &str| {
            let query = query(text, 2).table(&[("number", &numbers)]).bind(5);
            query.divided(10).len()
        };
        assert_eq!(parts(&format!("{UNDIVIDED} $1 LIMIT $2")), 1);
        assert_eq!(parts("$1 $2"), 100);
    }

    #[test]
    fn a_part_is_repeated_for_each_row() {
        let (ids, texts) = (vec![Uuid::nil(), Uuid::max()], vec![Some("it's"), None]);
        let text = format!("VALUES {EACH}1 (<id>, <text>, 1){EACH};");
        let query = query(&text, 1).table(&[("id", &ids), ("text", &texts)]);
        let (nil, max) = ("0".repeat(32), "f".repeat(32));
        assert_eq!(
            query.render(Session::Own, "", ""),
            format!("VALUES (x'{nil}', 'it''s', 1),\n(x'{max}', NULL, 1);")
        );
        assert_eq!(query.divided(10).len(), 2);
    }

    #[test]
    fn a_statement_knows_transactions_of_the_application() {
        let query = query(&format!("SELECT {WITHIN}"), 0);
        let render = |session| query.render(session, "", "");
        assert_eq!(render(Session::Transaction), "SELECT TRUE");
        assert_eq!(render(Session::Own), "SELECT FALSE");
        assert_eq!(render(Session::Pool), "SELECT FALSE");
    }

    #[test]
    fn a_part_for_values_is_left_out_without_values() {
        let query = |ids: Vec<i32>, turns: Vec<Option<i64>>| {
            let text = format!("a{SOME}1{SOME} IN ($1){END};{SOME}2 turn{SOME} b{END} c");
            let keys = vec!["\"turn\":null", "\"turn\":1"];
            let table = [("turn", &turns as &dyn Column), ("key", &keys)];
            query(&text, 2).bind(&ids).table(&table)
        };
        let text = query(vec![], vec![None, None]).render(Session::Own, "", "");
        assert_eq!(text, "a; c");
        let text = query(vec![5, 6], vec![None, Some(7)]).render(Session::Own, "", "");
        assert_eq!(text, "a IN (5,6); b c");
    }

    #[test]
    fn transactions_begin_and_end_where_the_text_says() {
        let query = query(&format!("SET 1;\n{BEGIN}\nSELECT 1;\n{COMMIT}"), 0);
        assert!(query.has_transaction());
        assert_eq!(
            query.render(Session::Own, "b;", "c;"),
            "SET 1;\nb;\nSELECT 1;\nc;"
        );
    }
}
