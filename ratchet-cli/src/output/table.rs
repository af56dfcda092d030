//! Tables with aligned columns.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::{BOLD, clean, paint};

/// One cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        let text = clean(text.as_ref());
        Self { text, style }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text.to_string(), Style::new())
    }
}

/// A table of text cells. A column whose heading begins with `>` is aligned to the right.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<Cell>,
    right: Vec<bool>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(heads: [&str; N]) -> Self {
        let head = |head: &&str| Cell::styled(head.trim_start_matches('>'), BOLD);
        Self {
            heads: heads.iter().map(head).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table without headings.
    pub(crate) fn plain(columns: usize) -> Self {
        Self {
            heads: Vec::new(),
            right: vec![false; columns],
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let heads = (!self.heads.is_empty()).then_some(&self.heads);
        let all = || heads.into_iter().chain(&self.rows);
        let width = |column: usize| all().filter_map(move |row| row.get(column)?.width().into());
        let widths: Vec<usize> = (0..self.right.len())
            .map(|column| width(column).max().unwrap_or(0))
            .collect();
        all().map(move |row| self.line(row, &widths))
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[column].saturating_sub(cell.width()));
            let text = match cell.text.as_str() {
                // An empty cell has no escape codes, so that trailing spaces can be removed.
                "" => String::new(),
                text => paint(cell.style, text),
            };
            let is_last = column + 1 == row.len();
            line += &match (self.right[column], is_last) {
                (true, _) => format!("{gap}{text}"),
                (false, true) => text,
                (false, false) => format!("{text}{gap}"),
            };
            if !is_last {
                line += "  ";
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(table: &Table) -> Vec<String> {
        let lines = table.lines();
        lines
            .map(|line| anstream::adapter::strip_str(&line).to_string())
            .collect()
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let mut table = Table::new(["NAME", ">JOBS", "STATE"]);
        table.row([
            "日本".into(),
            7.into(),
            Cell::styled("paused", super::super::WARN),
        ]);
        let nothing = Cell::styled("", super::super::WARN);
        table.row(["mail".into(), 1_234.into(), nothing]);
        assert_eq!(
            shown(&table),
            ["NAME  JOBS  STATE", "日本     7  paused", "mail  1234"]
        );
    }

    #[test]
    fn what_came_from_outside_cannot_steer_the_terminal() {
        let mut table = Table::plain(1);
        table.row(["a\x1b[31mb\nc".into()]);
        assert_eq!(shown(&table), ["a\u{fffd}[31mb c"]);
    }
}
