//! Loads the statements from their files.

use ratchet_sql::OwnStatements;

use crate::dialect::SqlServer;
use crate::words::Words;

/// A statement on the tables of one schema.
pub(crate) type Statement = ratchet_sql::Statement<SqlServer>;

/// All statements for one schema.
pub(crate) type Statements = ratchet_sql::Statements<SqlServer>;

/// Builds all statements. `words` has the values for the placeholders in their texts.
pub(crate) fn statements(words: &Words) -> Statements {
    load(|name, text| {
        #[cfg(feature = "mutants")]
        let text = ratchet_mutant::text(name, text);
        let rendered = words.render(&ratchet_sql::render(name, text));
        Statement::new(text, rendered)
    })
}

impl OwnStatements<SqlServer> for Own {
    fn tags_of(&self) -> Option<&Statement> {
        Some(&self.tags_of)
    }
}

ratchet_sql::dialect_statements! { SqlServer;
    jobs: tags_of;
    claims: ;
    lists: ;
    lanes: ;
    links: ;
    batches: ;
    signals: ;
    locks: ;
    nodes: ;
    queues: ;
    permits: ;
    recurring: ;
    archive: ;
    schema: own_indexes database_settings;
}

/// Statement that creates the table `migrations`. The scripts of the migrations contain it.
pub(crate) const CREATE_MIGRATIONS: &str = TEXTS.create_migrations;

/// Returns all statements, as pairs of the name and the text in the SQL file.
#[cfg(test)]
pub(crate) fn texts() -> Vec<(&'static str, &'static str)> {
    let mut texts = Vec::new();
    TEXTS.map(|name, text| texts.push((name, text)));
    texts
}

#[cfg(test)]
pub(crate) mod language;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod parameters;
