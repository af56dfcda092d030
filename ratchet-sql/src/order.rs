//! Reads names in byte order, as the contracts require.
//!
//! SQL Server compares UTF-16 code units. The code units of characters beyond the Basic
//! Multilingual Plane (surrogates) are less than U+E000 to U+FFFF. So SQL Server may sort two names
//! in the opposite order if both have a character above U+D7FF where they first differ.
//!
//! Names that are equal up to their first character above U+D7FF form a group. In both orders, the
//! names of a group are contiguous, and the group has the same place among all other names. So this
//! module reads each group as a whole and sorts it.

use crate::dialect::{Dialect, Row, Run};
use crate::failure::Result;

/// The last character that byte order and SQL Server's order sort in the same way. The two orders
/// can differ only for characters above it.
const LAST: char = '\u{D7FF}';

/// Minimum number of rows to request in each read after the first.
const TOGETHER: usize = 1_000;

/// Returns up to `limit` rows whose names come after `after` in byte order, sorted in byte order.
///
/// `list` builds the statement that reads a number of rows after a name, in the server's order.
/// `column` is the index of the column that contains the name.
pub(crate) async fn by_bytes<D: Dialect>(
    lease: &mut D::Lease,
    list: impl Fn(&str, i64) -> D::Query + Send,
    column: usize,
    after: &str,
    limit: usize,
) -> Result<Vec<D::Row>> {
    let mut walk = Walk::new(after, limit);
    while let Some((behind, count)) = walk.next() {
        let query = list(&behind, i64::try_from(count).unwrap_or(i64::MAX));
        let mut named = Vec::new();
        for row in lease.rows(query).await? {
            named.push((row.try_get(column)?, row));
        }
        walk.add(named);
    }
    Ok(walk.into_rows())
}

/// Collects rows that the server returns in its own order, until the rows include the first `limit`
/// rows in byte order.
struct Walk<'a, R> {
    after: &'a str,
    limit: usize,
    /// The next read: the name after which the rows begin, and the maximum number of rows. `None`
    /// when all necessary rows have been read.
    next: Option<(String, usize)>,
    found: Vec<(String, R)>,
}

impl<'a, R> Walk<'a, R> {
    fn new(after: &'a str, limit: usize) -> Self {
        let behind = match after.find(|c| c > LAST) {
            None => after.to_owned(),
            // Start before the group of `after`, because any name of that group may come after
            // `after` in byte order.
            Some(start) => format!("{}{LAST}", &after[..start]),
        };
        Self {
            after,
            limit,
            next: Some((behind, limit)),
            found: Vec::new(),
        }
    }

    fn next(&self) -> Option<(String, usize)> {
        self.next.clone()
    }

    fn add(&mut self, rows: Vec<(String, R)>) {
        let count = self.next.take().map_or(0, |(_, count)| count);
        let read = rows.len();
        let last = rows.last().map(|(name, _)| name.clone());
        let behind = rows.into_iter().filter(|(name, _)| **name > *self.after);
        self.found.extend(behind);
        let Some(last) = last.filter(|_| read == count) else {
            return;
        };
        // If the last name has a character above `LAST`, the server's next rows may come before it
        // in byte order.
        let stands_with_others = last.contains(|c| c > LAST);
        if self.found.len() < self.limit || stands_with_others {
            self.next = Some((last, self.limit.max(TOGETHER)));
        }
    }

    fn into_rows(mut self) -> Vec<R> {
        self.found.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.found.truncate(self.limit);
        self.found.into_iter().map(|(_, row)| row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all names of one to three characters from a fixed set, in SQL Server's order.
    fn stored() -> Vec<String> {
        let letters = [
            "",
            "a",
            "\u{D7FF}",
            "\u{E000}",
            "\u{FFFD}",
            "\u{10000}",
            "🦀",
        ];
        let mut names = Vec::new();
        for one in letters {
            for two in letters {
                for three in letters {
                    names.push(format!("{one}{two}{three}"));
                }
            }
        }
        names.retain(|name| !name.is_empty());
        names.sort_by_cached_key(|name| name.encode_utf16().collect::<Vec<u16>>());
        names.dedup();
        names
    }

    /// Returns up to `limit` names after `after` in byte order, and the number of reads that were
    /// necessary.
    fn page(stored: &[String], after: &str, limit: usize) -> (Vec<String>, usize) {
        let mut walk = Walk::new(after, limit);
        let mut reads = 0;
        while let Some((behind, count)) = walk.next() {
            reads += 1;
            let behind: Vec<u16> = behind.encode_utf16().collect();
            let rows = stored
                .iter()
                .filter(|name| name.encode_utf16().gt(behind.iter().copied()));
            walk.add(
                rows.take(count)
                    .map(|name| (name.clone(), name.clone()))
                    .collect(),
            );
        }
        (walk.into_rows(), reads)
    }

    #[test]
    fn pages_are_in_the_order_of_bytes_from_wherever_they_begin() {
        let stored = stored();
        let mut sorted = stored.clone();
        sorted.sort();
        assert_ne!(stored, sorted);
        for limit in [1, 2, 7, 300] {
            for after in sorted
                .iter()
                .map(String::as_str)
                .chain(["", "\u{E000}b", "a\u{1F99F}"])
            {
                let behind = sorted.iter().filter(|name| ***name > *after);
                let expected: Vec<String> = behind.take(limit).cloned().collect();
                assert_eq!(
                    page(&stored, after, limit).0,
                    expected,
                    "unexpected page of {limit} names after {after:?}"
                );
            }
        }
    }

    #[test]
    fn names_of_other_characters_are_read_once() {
        let stored: Vec<String> = ["a", "b", "ü", "日本"].map(str::to_owned).to_vec();
        assert_eq!(page(&stored, "", 3), (stored[..3].to_vec(), 1));
        assert_eq!(page(&stored, "b", 3), (stored[2..].to_vec(), 1));
    }
}
