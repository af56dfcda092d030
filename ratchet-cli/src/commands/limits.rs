//! `ratchet limits`: lists, sets and removes limits of fair keys.

use ratchet::FairScope;
use ratchet_http::view;

use super::pauses::done;
use crate::app::App;
use crate::args::{LimitScope, LimitsCommand};
use crate::exit::Failure;
use crate::output::Table;

pub(super) async fn run(app: &mut App, command: Option<LimitsCommand>) -> Result<(), Failure> {
    let client = app.client().await?;
    match command.unwrap_or(LimitsCommand::List) {
        LimitsCommand::List => list(app, &client.fair_limits().await?),
        LimitsCommand::Set { scope, max } => {
            let changed = client.set_fair_limit(&of(scope)?, max).await?;
            done(app, changed, "The limit is the same as before.")
        }
        LimitsCommand::Remove { scope } => {
            let changed = client.remove_fair_limit(&of(scope)?).await?;
            done(
                app,
                changed,
                "There was no such limit. `ratchet limits` lists the limits.",
            )
        }
    }
}

fn of(scope: LimitScope) -> Result<FairScope, Failure> {
    Ok(match scope.key {
        None => FairScope::queues(scope.queue)?,
        Some(key) => FairScope::key(scope.queue, key)?,
    })
}

fn list(app: &mut App, limits: &[ratchet::FairLimit]) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(&view::FairLimits {
            limits: limits.iter().map(view::FairLimit::from).collect(),
        });
    }
    let mut table = Table::new(["QUEUE", "KEY", ">AT ONCE"]);
    for limit in limits {
        table.row([
            limit.scope.queue().as_str().into(),
            limit
                .scope
                .fair_key()
                .map_or("(each)", |key| key.as_str())
                .into(),
            u64::from(limit.max).into(),
        ]);
    }
    app.out.table(&table, "no fair key has a limit")
}
