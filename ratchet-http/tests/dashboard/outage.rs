//! Outages that the dashboard must show: lost nodes and failed reads.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::model::{Heartbeat, NodeProfile, NodeStatus};
use ratchet_core::{Name, NewJob, NodeId};
use tokio::time::sleep;

use crate::page::Page;
use crate::stage::Stage;

const RED: &str = "getComputedStyle(document.querySelector('#alarm')).color === getComputedStyle(Object.assign(document.body.appendChild(document.createElement('i')), { className: 'badge tone-bad' })).color";

/// Adds a node that sends only one heartbeat.
async fn mute(stage: &Stage, label: &str, kind: &str) -> Result<NodeId> {
    let node = NodeId::new();
    beat(stage, node, label, kind).await?;
    Ok(node)
}

/// Sends one heartbeat of a node.
async fn beat(stage: &Stage, node: NodeId, label: &str, kind: &str) -> Result<()> {
    let name = |text: &str| Name::new("name", text);
    let beat = Heartbeat::new(
        node,
        name(label)?,
        NodeStatus::Active,
        Duration::from_secs(1),
    );
    let profile = NodeProfile::new(Vec::new(), Vec::new()).kinds(vec![name(kind)?]);
    stage
        .store
        .nodes()
        .heartbeat(&beat.profile(profile))
        .await?;
    Ok(())
}

/// The only node falls silent while a job is due that the node cannot run. The alarm replaces the
/// warning about the stranded job.
pub(crate) async fn nothing_runs(stage: &mut Stage) -> Result<()> {
    stage.client.enqueue(NewJob::new("lonely", &0)).await?;
    let page = &stage.page;
    let stranded = async {
        stage.visit("#/overview").await?;
        page.until(
            "document.querySelector('.alert.warn')?.textContent.includes('no node can run')",
        )
        .await?;
        anyhow::Ok(page.eval("document.querySelector('#alarm').hidden").await?)
    };
    // The node sends heartbeats until the page has shown the warning, however slow the page is.
    let node = NodeId::new();
    let lives = async {
        loop {
            beat(stage, node, "mute", "other").await?;
            sleep(Duration::from_secs(1)).await;
        }
    };
    let no_alarm = tokio::select! {
        shown = stranded => shown?,
        failed = lives => return failed,
    };
    ensure!(no_alarm == true, "expected no alarm while a node is live");
    page.until("document.querySelector('#alarm').checkVisibility()")
        .await?;
    page.until(
        "document.querySelector('#alarm').textContent.includes('No node is live, so no job runs')",
    )
    .await?;
    ensure!(page.eval(RED).await? == true, "expected a red alarm");
    page.until(
        "document.querySelector('[data-tile=Running].bad')?.textContent.includes('0 live nodes')",
    )
    .await?;
    for place in ["jobs", "queues", "cluster"] {
        stage.visit(&format!("#/{place}")).await?;
        page.until("document.querySelector('#alarm').checkVisibility()")
            .await?;
    }
    // Any live node ends the alarm, whatever it can run.
    stage.work().await?;
    stage
        .page
        .until("document.querySelector('#alarm').hidden")
        .await
}

pub(crate) async fn lost_nodes(stage: &mut Stage) -> Result<()> {
    let silent = mute(stage, "mute", "other").await?;
    let dead = mute(stage, "buried", "other").await?;
    stage
        .store
        .nodes()
        .set_node_status(dead, NodeStatus::Dead)
        .await?;
    stage.visit("#/cluster").await?;
    let page = &stage.page;
    for (node, word) in [(dead, "dead"), (silent, "silent")] {
        page.until(&format!(
            "document.querySelector('tr[data-key=\"{node}\"][data-look=bad] .badge.tone-bad')?.textContent === '{word}'"
        ))
        .await?;
    }
    stage.visit("#/overview").await?;
    for (label, word) in [("buried", "dead"), ("mute", "silent")] {
        page.until(&format!(
            "[...document.querySelectorAll('.node .badge.tone-bad')].some((one) => one.textContent === '{label} {word}')"
        ))
        .await?;
    }
    // The overview does not list a dead node that another node with its label has replaced.
    mute(stage, "buried", "other").await?;
    page.until("[...document.querySelectorAll('.node .badge.tone-good')].some((one) => one.textContent === 'buried')")
        .await?;
    page.until(
        "![...document.querySelectorAll('.node')].some((one) => one.textContent === 'buried dead')",
    )
    .await
}

/// Lets all requests fail whose URL contains the text `what`, as if the store had failed.
async fn fail(page: &Page, what: &str) -> Result<()> {
    page.eval(&format!(
        "window.real ??= window.fetch; window.fetch = (url, options) => String(url).includes('{what}')
            ? Promise.resolve(new Response(JSON.stringify({{ title: 'The store is not available', code: 'unavailable', status: 503 }}), {{ status: 503 }}))
            : real(url, options), 0"
    ))
    .await?;
    Ok(())
}

async fn repair(page: &Page) -> Result<()> {
    page.eval("window.fetch = real, 0").await?;
    page.key("r").await
}

pub(crate) const LAMP: &str = "document.querySelector('.link').dataset.state";
const LIES: &str = "[...document.querySelectorAll('main .empty, main [data-chosen]')].filter((one) => one.checkVisibility() && /^(0 jobs|No |Nothing)/.test(one.textContent) && one.textContent !== 'No answer yet').map((one) => one.textContent)";

pub(crate) async fn failed_reads(stage: &mut Stage) -> Result<()> {
    let later = NewJob::new("later", &0).delay(Duration::from_secs(9_000));
    stage.client.enqueue(later).await?;
    let page = &stage.page;
    for place in ["jobs", "queues", "recurring", "batches", "cluster"] {
        stage.visit("#/nowhere").await?;
        page.until(&format!("{LAMP} === 'live'")).await?;
        fail(page, "/").await?;
        page.eval(&format!("location.hash = '#/{place}'")).await?;
        page.until("document.querySelector('.alert.bad')").await?;
        let lies = page.eval(LIES).await?;
        ensure!(
            lies == serde_json::json!([]),
            "{place}: expected no statement about the data after a failed read, found {lies}"
        );
        page.until(&format!("{LAMP} === 'failing'")).await?;
        repair(page).await?;
        page.until(&format!(
            "{LAMP} === 'live' && !document.querySelector('.alert.bad')"
        ))
        .await?;
    }
    // After a failed read, the page shows neither the text for an empty list nor the rows of the
    // previous filter.
    stage.visit("#/jobs").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 1")
        .await?;
    fail(page, "api/jobs").await?;
    page.eval("location.hash = '#/jobs?kind=nothing'").await?;
    page.until("document.querySelector('.alert.bad')").await?;
    ensure!(
        page.eval("document.querySelectorAll('main tbody tr').length")
            .await?
            == 0
    );
    ensure!(page.eval(LIES).await? == serde_json::json!([]));
    repair(page).await?;
    page.until("[...document.querySelectorAll('.empty')].some((one) => one.checkVisibility() && one.textContent === 'No job matches.')")
        .await?;
    fail(page, "api/jobs").await?;
    page.key("r").await?;
    page.until("document.querySelector('.alert.bad')").await?;
    ensure!(page.eval(LIES).await? == serde_json::json!([]));
    repair(page).await?;
    page.until(&format!("{LAMP} === 'live'")).await?;
    // The server is reachable, but its database is not.
    page.eval("document.documentElement.ratchet.mute()").await?;
    page.eval("document.documentElement.ratchet.emit('tick', { stale: true, read_at: new Date().toISOString() })")
        .await?;
    page.until(&format!("{LAMP} === 'old'")).await
}
