//! The sizes of a database: its files, tables and indexes.

use std::fs;

use anyhow::Result;
use futures_util::TryStreamExt;
use mongodb::bson::doc;
use serde::Serialize;
use sqlx::postgres::PgConnection;

use crate::gauges::number;

/// The sizes of a database at one time, in bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sizes {
    /// The size of the database on disk. `None` if it is unknown.
    pub(crate) disk: Option<u64>,
    /// The tables or collections. Empty if they are unknown.
    pub(crate) relations: Vec<Relation>,
}

/// A table or collection with its indexes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Relation {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    /// Rows that vacuum has not removed yet. `None` if the database does not tell.
    pub(crate) dead_rows: Option<u64>,
}

impl Sizes {
    /// Returns the sum of one number of all relations. Returns `None` if the number is unknown.
    pub(crate) fn sum(&self, number: fn(&Relation) -> Option<u64>) -> Option<u64> {
        self.relations
            .iter()
            .filter_map(number)
            .reduce(|a, b| a + b)
    }
}

pub(crate) async fn postgres(connection: &mut PgConnection) -> Result<Sizes> {
    let disk: i64 = sqlx::query_scalar("SELECT pg_database_size(current_database())")
        .fetch_one(&mut *connection)
        .await?;
    let tables = "SELECT relname::text, pg_table_size(relid), pg_indexes_size(relid), n_dead_tup
                  FROM pg_stat_user_tables ORDER BY relname";
    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(tables)
        .fetch(connection)
        .try_collect()
        .await?;
    let relation = |(name, bytes, index_bytes, dead): (_, i64, i64, i64)| Relation {
        name,
        bytes: bytes.unsigned_abs(),
        index_bytes: index_bytes.unsigned_abs(),
        dead_rows: Some(dead.unsigned_abs()),
    };
    Ok(Sizes {
        disk: Some(disk.unsigned_abs()),
        relations: rows.into_iter().map(relation).collect(),
    })
}

/// Reads the sizes of the file and its write-ahead log, and of the pages that each table uses.
pub(crate) fn sqlite(connection: &rusqlite::Connection) -> Result<Sizes> {
    let file = connection.path().unwrap_or_default();
    let length = |path: &str| fs::metadata(path).map_or(0, |found| found.len());
    let tables = "SELECT tbl_name, sum(pgsize) FILTER (WHERE type = 'table'),
                         coalesce(sum(pgsize) FILTER (WHERE type = 'index'), 0)
                  FROM dbstat JOIN sqlite_schema USING (name)
                  GROUP BY tbl_name ORDER BY tbl_name";
    let mut statement = connection.prepare(tables)?;
    let relation = |row: &rusqlite::Row<'_>| {
        Ok(Relation {
            name: row.get(0)?,
            bytes: row.get::<_, i64>(1)?.unsigned_abs(),
            index_bytes: row.get::<_, i64>(2)?.unsigned_abs(),
            dead_rows: None,
        })
    };
    Ok(Sizes {
        disk: Some(length(file) + length(&format!("{file}-wal"))),
        relations: statement
            .query_map([], relation)?
            .collect::<Result<_, _>>()?,
    })
}

pub(crate) async fn mongodb(database: &mongodb::Database) -> Result<Sizes> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are positive, and exact below 2^53"
    )]
    let bytes = |figure: Option<f64>| figure.unwrap_or_default() as u64;
    let mut relations = Vec::new();
    for name in database.list_collection_names().await? {
        let stats = database.run_command(doc! { "collStats": &name }).await?;
        relations.push(Relation {
            name,
            bytes: bytes(number(&stats, &["storageSize"])),
            index_bytes: bytes(number(&stats, &["totalIndexSize"])),
            dead_rows: None,
        });
    }
    relations.sort_by(|a, b| a.name.cmp(&b.name));
    let disk = relations.iter().map(|it| it.bytes + it.index_bytes).sum();
    Ok(Sizes {
        disk: Some(disk),
        relations,
    })
}
