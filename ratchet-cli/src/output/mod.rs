//! The output of the commands on stdout, as text or JSON.

mod table;
mod text;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anstream::AutoStream;
use anstyle::Style;
use serde::Serialize;

pub(crate) use table::{Cell, Table};
pub(crate) use text::{ago, bytes, clean, instant, number, short, since, until};

use crate::args::Color;
use crate::exit::Failure;

/// Writes the output of a command to stdout, as text for people or as JSON for programs.
pub(crate) struct Output {
    out: AutoStream<io::Stdout>,
    json: bool,
    pretty: bool,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        let pretty = io::stdout().is_terminal();
        // `AlwaysAnsi` passes every byte through, so nothing is stripped from JSON.
        let choice = if json {
            anstream::ColorChoice::AlwaysAnsi
        } else {
            color.choice()
        };
        let out = AutoStream::new(io::stdout(), choice);
        Self { out, json, pretty }
    }

    /// Returns whether the command writes JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Writes one JSON document, which is the whole output of a command with `--json`.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        let text = match self.pretty {
            true => serde_json::to_string_pretty(document),
            false => serde_json::to_string(document),
        };
        self.json(text)
    }

    /// Writes one JSON value on one line, for commands that write a stream of values.
    pub(crate) fn record(&mut self, record: &impl Serialize) -> Result<(), Failure> {
        self.json(serde_json::to_string(record))
    }

    fn json(&mut self, text: serde_json::Result<String>) -> Result<(), Failure> {
        let text = text.map_err(|error| Failure::failed(error.to_string()))?;
        self.line(escaped(&text))
    }

    /// Writes one line of text.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{text}")?;
        Ok(())
    }

    /// Writes bytes unchanged, and flushes the output.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes)?;
        self.flush()
    }

    /// Writes a table. If the table has no rows, writes the text `empty` instead.
    pub(crate) fn table(&mut self, table: &Table, empty: &str) -> Result<(), Failure> {
        if table.is_empty() {
            return self.line(paint(DIM, empty));
        }
        for line in table.lines() {
            self.line(line)?;
        }
        Ok(())
    }

    /// Writes pairs of a name and a value, with one pair per line.
    pub(crate) fn fields<'a>(
        &mut self,
        fields: impl IntoIterator<Item = (&'a str, Cell)>,
    ) -> Result<(), Failure> {
        let mut table = Table::plain(2);
        for (name, value) in fields {
            table.row([Cell::styled(name, DIM), value]);
        }
        self.table(&table, "")
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

/// Escapes the control characters U+007F to U+009F. JSON allows them unescaped in strings, and a
/// terminal would interpret them.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            '\u{7f}'..='\u{9f}' => text += &format!("\\u{:04x}", u32::from(char)),
            _ => text.push(char),
        }
    }
    text
}

impl Color {
    /// Returns the colour choice for `anstream`. With `Auto`, `anstream` decides from the terminal
    /// and from variables such as `NO_COLOR`.
    pub(crate) const fn choice(self) -> anstream::ColorChoice {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
    }
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = anstyle::AnsiColor::Green.on_default();
pub(crate) const BUSY: Style = anstyle::AnsiColor::Cyan.on_default();
pub(crate) const WARN: Style = anstyle::AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = anstyle::AnsiColor::Red.on_default();

/// Adds the escape codes of a style around the text. Text from outside the program must first be
/// passed through [`clean`].
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{}{text}{}", style.render(), style.render_reset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_steer_the_terminal_and_stays_the_same() {
        let value = serde_json::json!({ "error": "a\u{9b}31m\u{7f}\u{1b}[0mü" });
        let text = escaped(&value.to_string());
        assert!(!text.chars().any(char::is_control), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value);
    }
}
