//! `ratchet pauses` and `ratchet kinds`: lists what is paused, and pauses and resumes kinds.

use ratchet::{
    Changed, Client, Detail, JobFilter, Name, PageRequest, PauseInfo, PauseRequest, PauseScope,
};
use ratchet_http::view;

use crate::app::App;
use crate::args::{KindsCommand, Why};
use crate::exit::Failure;
use crate::output::{Table, since};

pub(super) async fn list(app: &mut App) -> Result<(), Failure> {
    let client = app.client().await?;
    let pauses = client.pauses().await?;
    if app.out.is_json() {
        return app.out.document(&view::Pauses {
            pauses: pauses.iter().map(view::Pause::from).collect(),
        });
    }
    let now = client.database_time().await?;
    let mut table = Table::new(["PAUSED", "NAME", ">FOR", "BY", "REASON"]);
    for pause in &pauses {
        let scope = match pause.scope {
            PauseScope::Queue(_) => "queue",
            PauseScope::Kind(_) => "kind",
        };
        let PauseInfo { by, reason, .. } = pause;
        let passed = (now - pause.at).to_std().unwrap_or_default();
        table.row([
            scope.into(),
            pause.scope.name().as_str().into(),
            since(passed).into(),
            by.as_deref().unwrap_or_default().into(),
            reason.as_deref().unwrap_or_default().into(),
        ]);
    }
    app.out.table(&table, "nothing is paused")
}

pub(super) async fn kinds(app: &mut App, command: KindsCommand) -> Result<(), Failure> {
    let client = app.client().await?;
    match command {
        KindsCommand::Pause { kind, why, new } => {
            let scope = PauseScope::kind(kind)?;
            if !new {
                exists(&client, scope.name()).await?;
            }
            pause(app, &client, scope, why).await
        }
        KindsCommand::Resume { kind } => {
            let scope = PauseScope::kind(kind)?;
            let changed = client.end_pause(&scope).await?;
            if changed == Changed::Unchanged {
                exists(&client, scope.name()).await?;
            }
            done(app, changed, "The kind was not paused.")
        }
    }
}

/// Pauses a queue or a kind.
pub(super) async fn pause(
    app: &mut App,
    client: &Client,
    scope: PauseScope,
    why: Why,
) -> Result<(), Failure> {
    let already = match scope {
        PauseScope::Queue(_) => "The queue was paused already. `ratchet pauses` shows why.",
        PauseScope::Kind(_) => "The kind was paused already. `ratchet pauses` shows why.",
    };
    let mut request = PauseRequest::new(scope);
    let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
    request.by = why.by.or_else(user);
    request.reason = why.reason;
    done(app, client.begin_pause(&request).await?, already)
}

/// Prints whether a pause began or ended.
pub(super) fn done(app: &mut App, changed: Changed, unchanged: &str) -> Result<(), Failure> {
    if app.out.is_json() {
        return app.out.document(&view::Changed::from(changed));
    }
    app.out.line(match changed {
        Changed::Changed => "Done.",
        Changed::Unchanged => unchanged,
    })
}

/// Fails if no live node runs the kind, no job of it is stored and it is not paused, because its
/// name is then probably mistyped.
async fn exists(client: &Client, kind: &Name) -> Result<(), Failure> {
    let paused = client.pauses().await?;
    let is_paused = |pause: &PauseInfo| pause.scope == PauseScope::Kind(kind.clone());
    let nodes = client.nodes().await?;
    let runs = nodes.iter().any(|node| {
        let kinds = node.profile.kinds.as_ref();
        node.status.is_live() && kinds.is_some_and(|kinds| kinds.contains(kind))
    });
    if runs || paused.iter().any(is_paused) {
        return Ok(());
    }
    let filter = JobFilter::all().kind(kind.clone());
    let page = PageRequest::first(1).detail(Detail::Outline);
    if !client.list(&filter, &page).await?.jobs.is_empty() {
        return Ok(());
    }
    let unknown = format!(
        "there is no kind `{kind}`: no live node runs it, no job of it is stored, and it is not \
         paused"
    );
    Err(Failure::not_found(unknown).remedy(
        "`ratchet nodes list` lists the nodes; `ratchet kinds pause --new` pauses a kind before \
         its first job.",
    ))
}
