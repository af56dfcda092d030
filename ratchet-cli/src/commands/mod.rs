//! The commands, one module for each.

mod bench;
mod bulk;
mod config;
mod doctor;
mod enqueue;
mod jobs;
mod keys;
mod limits;
mod locks;
mod migrate;
mod nodes;
mod pauses;
mod print;
mod queues;
mod recurring;
mod serve;
mod status;
mod top;

use crate::app::App;
use crate::args::Command;
use crate::exit::Failure;
use crate::interruptible;

pub(crate) async fn run(app: &mut App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Migrate(how) => interruptible(migrate::run(app, how)).await,
        Command::Status => interruptible(status::run(app)).await,
        Command::Nodes(what) => interruptible(nodes::run(app, what)).await,
        Command::Jobs(what) => jobs::run(app, what.command).await,
        Command::Enqueue(job) => interruptible(enqueue::run(app, job)).await,
        Command::Queues(what) => interruptible(queues::run(app, what.command)).await,
        Command::Kinds(what) => interruptible(pauses::kinds(app, what)).await,
        Command::Pauses => interruptible(pauses::list(app)).await,
        Command::Keys(args) => interruptible(keys::run(app, args)).await,
        Command::Limits(what) => interruptible(limits::run(app, what.command)).await,
        Command::Recurring(what) => interruptible(recurring::run(app, what.command)).await,
        Command::Locks => interruptible(locks::run(app)).await,
        Command::Doctor(what) => interruptible(doctor::run(app, what)).await,
        Command::Bench(what) => bench::run(app, what).await,
        Command::Serve(how) => serve::run(app, how).await,
        Command::Top(what) => top::run(app, what).await,
        Command::Config(what) => config::run(app, what),
        Command::Completions(what) => print::completions(app, what),
        Command::Man(what) => print::man(app, &what),
    }
}
