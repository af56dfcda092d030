//! `ratchet keys`: shows the fair keys with the most jobs.

use ratchet_http::view;

use crate::app::App;
use crate::args::Keys;
use crate::exit::Failure;
use crate::output::Table;

pub(super) async fn run(app: &mut App, args: Keys) -> Result<(), Failure> {
    let client = app.client().await?;
    let usage = view::FairKeys::from(&client.fair_keys(args.limit).await?);
    if app.out.is_json() {
        return app.out.document(&usage);
    }
    let mut table = Table::new(["QUEUE", "KEY", ">RUNNING", ">WAITING"]);
    for key in usage.keys {
        table.row([
            key.queue.into(),
            key.key.into(),
            key.running.into(),
            key.waiting.into(),
        ]);
    }
    app.out
        .table(&table, "no job with a fair key runs or waits")?;
    if !usage.complete {
        app.out
            .line("Only the 10,000 newest jobs and at most 10,000 running jobs are counted.")?;
    }
    Ok(())
}
