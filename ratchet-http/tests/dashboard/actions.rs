//! Buttons of the dashboard take effect in the store.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratchet_core::model::{JobFilter, NodeStatus, PauseRequest, PauseScope};
use ratchet_core::{Job, JobState, NewJob, Recurring};

use crate::jobs::{Broken, Echo, Slow};
use crate::stage::{Stage, eventually};

const DAY: Duration = Duration::from_secs(86_400);

fn waiting() -> NewJob {
    Echo {
        text: "x".to_owned(),
    }
    .into_job()
    .delay(DAY)
}

pub(crate) async fn on_jobs(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let client = stage.client.clone();
    let job = client.enqueue(waiting()).await?.id();
    let press = |action: &str| {
        format!(".head [data-action={action}][aria-disabled=true], .head [data-action={action}]")
    };
    let page = &stage.page;

    stage.visit(&format!("#/jobs/{job}")).await?;
    page.until_text("pending").await?;
    page.until("document.querySelector('.head [data-action=retry]').getAttribute('aria-disabled') === 'true'").await?;
    page.click(&press("pause")).await?;
    stage.until_state(job, JobState::Paused).await?;
    page.until("document.querySelector('h1 + .sub').textContent.includes('paused')")
        .await?;
    page.click(&press("resume")).await?;
    stage.until_state(job, JobState::Pending).await?;
    page.until("document.querySelector('h1 + .sub').textContent.includes('pending')")
        .await?;
    page.click(&press("cancel")).await?;
    page.confirm().await?;
    stage.until_state(job, JobState::Cancelled).await?;
    page.until("document.querySelector('h1 + .sub').textContent.includes('cancelled')")
        .await?;
    page.click(&press("delete")).await?;
    page.confirm().await?;
    eventually("the job is gone", || async {
        Ok(client.job(job).await?.is_none())
    })
    .await?;
    page.until("location.hash === '#/jobs'").await?;

    let dead = client
        .enqueue(
            Broken {
                error: "no".to_owned(),
            }
            .into_job(),
        )
        .await?
        .id();
    stage.until_state(dead, JobState::Failed).await?;
    let before = client.history(dead).await?.len();
    stage.visit(&format!("#/jobs/{dead}")).await?;
    page.click(&press("retry")).await?;
    eventually("the job was tried again", || async {
        Ok(client.history(dead).await?.len() > before)
    })
    .await?;

    let slow = client
        .enqueue(
            Slow {
                message: "on it".to_owned(),
            }
            .into_job(),
        )
        .await?
        .id();
    stage.until_state(slow, JobState::Running).await?;
    stage.visit(&format!("#/jobs/{slow}")).await?;
    page.click(&press("cancel")).await?;
    // Closing the dialog with Escape changes nothing.
    page.until("document.activeElement.textContent === 'Leave it'")
        .await?;
    page.key("Escape").await?;
    page.until("!document.querySelector('dialog')").await?;
    ensure!(
        client
            .job(slow)
            .await?
            .is_some_and(|job| !job.cancel_requested)
    );
    page.click(&press("cancel")).await?;
    page.confirm().await?;
    page.until_text("Asked the handler to stop").await?;
    stage.until_state(slow, JobState::Cancelled).await?;
    page.until("document.querySelector('h1 + .sub').textContent.includes('cancelled')")
        .await
}

pub(crate) async fn in_bulk(stage: &mut Stage) -> Result<()> {
    let client = stage.client.clone();
    let jobs: Vec<NewJob> = (0..40).map(|_| waiting().queue("many")).collect();
    let other = client.enqueue(waiting().queue("other")).await?.id();
    client.enqueue_all(&jobs).await?;
    let count = async |state: JobState| -> Result<u64> {
        let filter = JobFilter::all().queue(ratchet_core::Name::new("queue", "many")?);
        Ok(client
            .count(&filter)
            .await?
            .get(&state)
            .copied()
            .unwrap_or(0))
    };
    let page = &stage.page;

    stage.visit("#/jobs?queue=many&limit=25").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 25")
        .await?;
    for index in [1, 3] {
        page.click(&format!(
            "main tbody tr:nth-child({index}) input[type=checkbox]"
        ))
        .await?;
    }
    page.until("document.querySelector('[data-chosen]').dataset.chosen === '2'")
        .await?;
    page.click("[data-action=bulk-pause]").await?;
    page.confirm().await?;
    page.until_text("2 paused").await?;
    ensure!(count(JobState::Paused).await? == 2);

    page.until("document.querySelector('[data-chosen]').dataset.chosen === '0'")
        .await?;
    page.click("thead input[type=checkbox]").await?;
    page.click("[data-action=everything]").await?;
    page.until_text("All that match are chosen").await?;
    page.click("[data-action=bulk-cancel]").await?;
    page.until("document.querySelector('dialog[open]').textContent.includes('queue many')")
        .await?;
    page.confirm().await?;
    page.until_text("40 cancelled").await?;
    ensure!(count(JobState::Cancelled).await? == 40);
    let other = client
        .job(other)
        .await?
        .context("the other job does not exist")?;
    ensure!(
        other.state == JobState::Pending,
        "expected the jobs of another queue to stay unchanged"
    );

    page.until("document.querySelector('[data-chosen]').dataset.chosen === '0'")
        .await?;
    page.click("thead input[type=checkbox]").await?;
    page.click("[data-action=bulk-delete]").await?;
    page.confirm().await?;
    page.until_text("25 deleted").await?;
    ensure!(count(JobState::Cancelled).await? == 15);
    Ok(())
}

pub(crate) async fn on_others(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let client = stage.client.clone();
    let name = "a queue/with ?odd #signs";
    client.enqueue(waiting().queue(name)).await?;
    let paused = async || -> Result<bool> {
        Ok(client
            .queues()
            .await?
            .iter()
            .any(|queue| queue.name.as_str() == name && queue.paused))
    };
    let page = &stage.page;

    stage.visit("#/queues").await?;
    let row = format!("tr[data-key=\"{name}\"]");
    let kind = PauseRequest::new(PauseScope::kind("charge_card")?);
    let kind = kind.by("alice").reason("the provider is down");
    client.begin_pause(&kind).await?;
    page.click(&format!("{row} [data-action=pause]")).await?;
    page.until("document.querySelector('dialog input')").await?;
    page.eval("document.querySelector('dialog input').value = 'maintenance'")
        .await?;
    page.confirm().await?;
    page.until(&format!(
        "document.querySelector('{row}').textContent.includes('paused')
            && document.querySelector('{row}').textContent.includes('maintenance')"
    ))
    .await?;
    ensure!(paused().await?);
    let row_of_kind = "tr[data-key=charge_card]";
    page.until_text("the provider is down").await?;
    page.until_text("alice").await?;
    page.click(&format!("{row_of_kind} [data-action=resume]"))
        .await?;
    page.until(&format!("!document.querySelector('{row_of_kind}')"))
        .await?;
    ensure!(client.pauses().await?.len() == 1);
    page.click(&format!("{row} [data-action=resume]")).await?;
    page.until(&format!(
        "document.querySelector('{row}').textContent.includes('open')"
    ))
    .await?;
    ensure!(!paused().await?);

    let again = Recurring::every(DAY)
        .job(
            Echo {
                text: "fired".to_owned(),
            }
            .into_job(),
        )
        .named("daily / all");
    client.recurring().put(again).await?;
    let row = "tr[data-key=\"daily / all\"]";
    stage.visit("#/recurring").await?;
    page.click(&format!("{row} [data-action=pause]")).await?;
    page.confirm().await?;
    page.until(&format!(
        "document.querySelector('{row}').textContent.includes('when resumed')"
    ))
    .await?;
    let stored = async || -> Result<bool> {
        Ok(client
            .recurring()
            .get("daily / all")
            .await?
            .is_some_and(|one| one.paused))
    };
    ensure!(stored().await?);
    page.click(&format!("{row} [data-action=resume]")).await?;
    page.until(&format!(
        "!document.querySelector('{row}').textContent.includes('when resumed')"
    ))
    .await?;
    ensure!(!stored().await?);
    page.click(&format!("{row} [data-action=trigger]")).await?;
    page.confirm().await?;
    page.click("#notices a").await?;
    page.until("location.hash.startsWith('#/jobs/')").await?;
    page.until_text("daily / all").await?;

    let batch = client.create_batch().await?;
    client
        .enqueue_all(&[waiting().in_batch(batch), waiting().in_batch(batch)])
        .await?;
    client.close_batch(batch).await?;
    stage.visit("#/batches").await?;
    page.click(&format!("tr[data-key=\"{batch}\"] [data-action=cancel]"))
        .await?;
    page.confirm().await?;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{batch}\"]').textContent.includes('ended')"
    ))
    .await?;
    let batch = client
        .batch(batch)
        .await?
        .context("the batch is not stored")?;
    ensure!(batch.cancelled == 2, "{batch:?}");

    stage.visit("#/cluster").await?;
    page.click("[data-action=drain]").await?;
    page.confirm().await?;
    eventually("the node drains", || async {
        let nodes = client.nodes().await?;
        Ok(nodes
            .iter()
            .any(|node| matches!(node.status, NodeStatus::Draining | NodeStatus::Left)))
    })
    .await
}
