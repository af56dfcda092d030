//! Divides the work of a call when other transactions have locked some of its documents.

/// Number of conflicts with other transactions after which a call leaves out what conflicts. The
/// number suffices to find one locked document of 1,000.
const CONFLICTS: u32 = 24;

/// The items of a call, in chunks of which each is written in a transaction of its own.
///
/// A transaction conflicts as a whole if another one has locked a single document. So after a
/// conflict, the chunk is divided until the locked items are alone. They are then left out, and
/// keep no others waiting.
pub(crate) struct Division<'a, T> {
    /// The chunks that are not written yet. The next one is the last.
    chunks: Vec<&'a [T]>,
    conflicts: u32,
    left_out: Vec<&'a T>,
}

impl<'a, T> Division<'a, T> {
    /// Creates a division with one chunk. `conflicts` is the number of conflicts that the call has
    /// met already.
    pub(crate) fn new(items: &'a [T], conflicts: u32) -> Self {
        Self {
            chunks: vec![items],
            conflicts,
            left_out: Vec::new(),
        }
    }

    /// Returns the next chunk, in the order of the items.
    pub(crate) fn next(&mut self) -> Option<&'a [T]> {
        let chunk = self.chunks.pop()?;
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Divides a chunk that conflicts because an item is locked. Leaves it out if it has one item,
    /// or after too many conflicts.
    pub(crate) fn locked(&mut self, chunk: &'a [T]) {
        if self.may_go_on() && chunk.len() > 1 {
            let (first, second) = chunk.split_at(chunk.len() / 2);
            self.chunks.extend([second, first]);
        } else {
            self.left_out.extend(chunk);
        }
        self.conflicts += 1;
    }

    /// Repeats a chunk that conflicts because of something that all items need. Leaves it out after
    /// too many conflicts. Returns the number of conflicts if the chunk is repeated; the caller
    /// should wait before it goes on.
    pub(crate) fn repeat(&mut self, chunk: &'a [T]) -> Option<u32> {
        let repeats = self.may_go_on();
        match repeats {
            true => self.again(chunk),
            false => self.left_out.extend(chunk),
        }
        self.conflicts += 1;
        repeats.then_some(self.conflicts)
    }

    /// Makes this chunk the next one.
    pub(crate) fn again(&mut self, chunk: &'a [T]) {
        self.chunks.push(chunk);
    }

    /// Returns the number of conflicts that the call has met.
    pub(crate) const fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Returns whether the call has not met too many conflicts yet.
    const fn may_go_on(&self) -> bool {
        may_go_on(self.conflicts)
    }

    /// Returns the items that were left out.
    pub(crate) fn left_out(&self) -> &[&'a T] {
        &self.left_out
    }
}

/// Returns whether a call that has met this number of conflicts goes on.
pub(crate) const fn may_go_on(conflicts: u32) -> bool {
    conflicts < CONFLICTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes all items in an order, except the locked ones. Returns what was written.
    fn written(division: &mut Division<'_, u32>, locked: &[u32]) -> Vec<u32> {
        let mut written = Vec::new();
        while let Some(chunk) = division.next() {
            match chunk.iter().any(|item| locked.contains(item)) {
                true => division.locked(chunk),
                false => written.extend(chunk),
            }
        }
        written
    }

    #[test]
    fn locked_items_keep_no_others_waiting() {
        let items: Vec<u32> = (0..1_000).collect();
        let mut division = Division::new(&items, 0);
        let all = written(&mut division, &[617]);
        assert_eq!(division.left_out(), [&617]);
        assert_eq!(all.len(), 999);
        assert!(all.is_sorted());
        assert!(may_go_on(division.conflicts()));
    }

    #[test]
    fn a_call_gives_up_after_many_conflicts() {
        let items: Vec<u32> = (0..1_000).collect();
        let mut division = Division::new(&items, 0);
        written(&mut division, &items);
        assert_eq!(division.left_out().len(), 1_000);
        assert!(division.conflicts() < 2 * CONFLICTS);
        let mut division = Division::new(&items, 0);
        let mut repeats = 0;
        while let Some(chunk) = division.next() {
            repeats += u32::from(division.repeat(chunk).is_some());
        }
        assert_eq!(repeats, CONFLICTS);
        assert_eq!(division.left_out().len(), 1_000);
    }
}
