//! The database's clock, in milliseconds.

use mongodb::bson::{Bson, doc};
use ratchet_core::StoreErrorKind;

use crate::connection::{Rows, Side};
use crate::error::{Failure, Result};

/// The source of the time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The server's clock.
    Server,
    /// For tests: the field `now_ms` of the only document of a collection.
    Test(Rows),
}

/// The time of one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now {
    /// The time at which the server runs the statement.
    Server,
    /// A constant, in milliseconds.
    Fixed(i64),
}

impl Now {
    /// Returns the time as an expression in a pipeline.
    pub(crate) fn expression(self) -> Bson {
        match self {
            Self::Server => doc! { "$toLong": "$$NOW" }.into(),
            Self::Fixed(now) => now.into(),
        }
    }
}

impl Clock {
    /// Returns the time for a statement in which the server can evaluate expressions. Needs no
    /// round trip, except with a test's clock.
    pub(crate) async fn now(&self, side: &Side) -> Result<Now> {
        match self {
            Self::Server => Ok(Now::Server),
            Self::Test(_) => self.millis(side).await.map(Now::Fixed),
        }
    }

    /// Reads the time, in milliseconds, for statements that need a constant: for the bound of an
    /// index, or in an insert, in which the server evaluates no expressions.
    pub(crate) async fn millis(&self, side: &Side) -> Result<i64> {
        match self {
            Self::Server => {
                let hello = side.database.run_command(doc! { "hello": 1 }).await?;
                match hello.get_datetime("localTime") {
                    Ok(time) => Ok(time.timestamp_millis()),
                    Err(_) => Err(no_time()),
                }
            }
            Self::Test(rows) => {
                let row = side.plain().find_one(rows, doc! {}).await?;
                let row = row.ok_or_else(no_time)?;
                row.get_i64("now_ms").map_err(|_| no_time())
            }
        }
    }
}

fn no_time() -> Failure {
    Failure::new(StoreErrorKind::Other, "the server's reply has no time")
}
