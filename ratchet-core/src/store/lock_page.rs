use std::fmt;

use super::LockInfo;
use crate::name::Name;

/// Builds one page of a list of locks from the rows of a store. The page leaves out rows that
/// cannot be read, and asks for further rows instead, as the clause `[lock.list]` requires.
#[derive(Debug)]
pub struct LockPage {
    limit: usize,
    /// The stored name of the last row that was read. The next read begins after this name.
    behind: String,
    over: bool,
    locks: Vec<(Name, LockInfo)>,
}

impl LockPage {
    /// Creates an empty page for up to `limit` locks, whose names come after `after` if it is
    /// given.
    #[must_use]
    pub fn new(after: Option<&Name>, limit: usize) -> Self {
        Self {
            limit,
            // A name is never empty, so all names come after the empty text.
            behind: after.map_or_else(String::new, |after| after.as_str().to_owned()),
            over: false,
            locks: Vec::new(),
        }
    }

    /// Returns the next read of the store: a name, and a number of rows. The store must read the
    /// first rows after that name, in the order of the names, up to that number. Returns `None` if
    /// the page is complete.
    #[must_use]
    pub fn wants(&self) -> Option<(String, usize)> {
        let left = self.wanted();
        (left > 0 && !self.over).then(|| (self.behind.clone(), left))
    }

    const fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.locks.len())
    }

    /// Adds the rows that the store read, and ignores rows beyond the number that
    /// [`wants`](Self::wants) returned. A row consists of the stored name and the lock. The name is
    /// `None` if it is not text. If there are fewer rows than requested, the store has no further
    /// rows.
    pub fn take<E: fmt::Display>(
        &mut self,
        rows: impl IntoIterator<Item = (Option<String>, Result<(Name, LockInfo), E>)>,
    ) {
        let wanted = self.wanted();
        let mut read = 0;
        for (name, lock) in rows.into_iter().take(wanted) {
            read += 1;
            // If the name of the last row is not text, the next read cannot begin after it. The
            // page then ends.
            self.over = name.is_none();
            self.behind = name.unwrap_or_default();
            match lock {
                Ok(lock) => self.locks.push(lock),
                Err(error) => tracing::warn!(%error, "skipped a stored lock that cannot be read"),
            }
        }
        self.over |= read < wanted;
    }

    /// Returns the locks of the page.
    #[must_use]
    pub fn into_locks(self) -> Vec<(Name, LockInfo)> {
        self.locks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InvalidInput;
    use crate::id::Fence;

    /// Fills a page from the `stored` names. Returns the names in the page and the number of reads.
    /// Locks whose names contain `!` cannot be read.
    fn page(stored: &[&str], after: Option<&str>, limit: usize) -> (Vec<String>, usize) {
        let after = after.map(|after| Name::new("name", after).unwrap());
        let mut page = LockPage::new(after.as_ref(), limit);
        let mut reads = 0;
        while let Some((behind, count)) = page.wants() {
            reads += 1;
            let rows = stored.iter().filter(|name| **name > &*behind).take(count);
            page.take(rows.map(|name| {
                let free = LockInfo {
                    fence: Fence(1),
                    holder: None,
                    holder_gone: false,
                    expired_for: None,
                };
                let lock = match name.contains('!') {
                    true => Err(InvalidInput::new("name", "is spoiled")),
                    false => Name::new("name", name).map(|name| (name, free)),
                };
                (Some((*name).to_owned()), lock)
            }));
        }
        let names = page.into_locks().into_iter();
        (names.map(|(name, _)| name.to_string()).collect(), reads)
    }

    #[test]
    fn a_page_that_can_be_read_is_read_once() {
        let stored = ["a", "b", "c", "d"];
        assert_eq!(page(&stored, None, 2), (vec!["a".into(), "b".into()], 1));
        assert_eq!(page(&stored, Some("c"), 2), (vec!["d".into()], 1));
        assert_eq!(page(&stored, Some("d"), 2), (vec![], 1));
    }

    #[test]
    fn an_unreadable_lock_takes_no_place_on_a_page() {
        let stored = ["a", "b!", "c!", "d", "e!", "f"];
        let found = |after, limit| page(&stored, after, limit).0;
        assert_eq!(found(None, 2), ["a", "d"]);
        assert_eq!(found(Some("a"), 1), ["d"]);
        assert_eq!(found(None, 6), ["a", "d", "f"]);
        assert_eq!(found(Some("f"), 1), [""; 0]);
    }

    #[test]
    fn a_name_that_is_no_text_ends_the_page() {
        let mut page = LockPage::new(None, 1);
        page.take([(None, Err("it is a number"))]);
        assert_eq!(page.wants(), None);
        assert_eq!(page.into_locks(), []);
    }
}
