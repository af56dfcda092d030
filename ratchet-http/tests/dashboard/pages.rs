//! Each page shows the stored data.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratchet_core::schedule::{Overlap, ZoneData};
use ratchet_core::{Job, JobState, NewJob, Recurring, RetryPolicy, Workflow};

use crate::jobs::{Broken, Echo, Second, Slow};
use crate::page::Page;
use crate::stage::{Stage, eventually};

fn echo(text: &str) -> NewJob {
    Echo {
        text: text.to_owned(),
    }
    .into_job()
}

pub(crate) async fn every_page(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let client = stage.client.clone();
    let done = client
        .enqueue(echo("hello").tag("greeting").queue("calm"))
        .await?
        .id();
    let error = "the disk is full".to_owned();
    let dead = client
        .enqueue(Broken { error }.into_job().queue("calm"))
        .await?
        .id();
    let message = "page 3 of 7".to_owned();
    let slow = client.enqueue(Slow { message }.into_job()).await?.id();
    let later = client
        .enqueue(echo("later").delay(Duration::from_secs(7200)).lane("one"))
        .await?
        .id();
    // The number has more digits than JavaScript can hold.
    let exact = NewJob::new("nobody's", &123_456_789_012_345_678_901_234_567_890_u128);
    let exact = client.enqueue(exact).await?.id();
    let every = Recurring::every(Duration::from_secs(3600)).overlap(Overlap::Skip);
    client
        .recurring()
        .put(every.job(echo("again")).named("hourly"))
        .await?;
    let nightly = Recurring::cron("0 3 * * *").zone("Europe/Berlin");
    client
        .recurring()
        .put(nightly.job(echo("night")).named("nightly"))
        .await?;
    let batch = client.create_batch().await?;
    client
        .enqueue_all(&[echo("a").in_batch(batch), echo("b").in_batch(batch)])
        .await?;
    client.close_batch(batch).await?;
    client.set_permits("smtp", 3).await?;
    stage.until_state(done, JobState::Succeeded).await?;
    stage.until_state(dead, JobState::Failed).await?;
    stage.until_state(slow, JobState::Running).await?;
    eventually("the progress is stored", || async {
        Ok(client
            .job(slow)
            .await?
            .is_some_and(|job| job.progress.is_some()))
    })
    .await?;

    let page = &stage.page;
    stage.visit("#/overview").await?;
    for text in [
        "Throughput",
        "Wait before start",
        "Oldest due job",
        "the disk is full",
        "maintenance",
        "first",
    ] {
        page.until_text(text).await?;
    }
    page.until("document.querySelector('[data-tile=Running] .value')?.textContent.startsWith('1')")
        .await?;
    page.until(
        "document.querySelector('[data-tile=\"Dead letters\"] .value')?.textContent === '1'",
    )
    .await?;
    page.until("document.querySelectorAll('.plot svg').length === 4")
        .await?;
    ensure!(
        asked(page, "/api/jobs?") == 0,
        "expected the overview page to request no jobs"
    );
    // When a job becomes a dead letter, the server sends an event, and the page adds the job to its
    // list.
    let error = "the disk is gone".to_owned();
    let gone = client.enqueue(Broken { error }.into_job()).await?.id();
    page.until(&format!(
        "document.querySelector('main tr[data-key=\"{gone}\"]')?.textContent.includes('the disk is gone')"
    ))
    .await?;

    stage.visit("#/jobs").await?;
    for id in [done, dead, slow, later] {
        page.until(&format!("document.querySelector('tr[data-key=\"{id}\"]')"))
            .await?;
    }
    for text in [
        "greeting",
        "calm",
        "lane one",
        "page 3 of 7",
        "40 %",
        "the disk is full",
    ] {
        page.until_text(text).await?;
    }

    stage.visit(&format!("#/jobs/{done}")).await?;
    for text in [
        "echo",
        "succeeded",
        "\"text\": \"hello\"",
        "Result",
        "#1",
        &done.to_string(),
    ] {
        page.until_text(text).await?;
    }
    stage.visit(&format!("#/jobs/{slow}")).await?;
    for text in ["running", "40 %", "page 3 of 7", "Checkpoint"] {
        page.until_text(text).await?;
    }
    stage.visit(&format!("#/jobs/{dead}")).await?;
    page.until_text("Last error").await?;

    stage.visit(&format!("#/jobs/{exact}")).await?;
    page.until_text("123456789012345678901234567890").await?;

    stage.visit("#/queues").await?;
    page.until("document.querySelector('tr[data-key=calm]')?.textContent.includes('open')")
        .await?;
    stage.visit("#/recurring").await?;
    for text in [
        "hourly",
        "every 1 h",
        "nightly",
        "0 3 * * *",
        "Europe/Berlin",
        "in 59 min",
    ] {
        page.until_text(text).await?;
    }
    stage.visit("#/batches").await?;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{batch}\"]')?.textContent.includes('100 %')"
    ))
    .await?;
    stage.visit("#/cluster").await?;
    for text in [
        "first",
        "active",
        "leads maintenance",
        "1 of 1",
        "leader/maintenance",
        "smtp",
        "0 of 3",
        "4 kinds",
        &format!(
            "zones {}",
            ZoneData::in_use().version.as_deref().unwrap_or("unknown")
        ),
    ] {
        page.until_text(text).await?;
    }
    graph(stage).await
}

async fn graph(stage: &Stage) -> Result<()> {
    let flow = Workflow::new();
    let first = flow.add(echo("first step"));
    let left = flow.add(echo("left")).after(&first);
    let right = flow.add(echo("right")).after(&first);
    let end = flow.add(echo("end")).after_all([&left, &right]);
    let rescue = flow.add(echo("rescue")).after_failure(&end);
    let (end, rescue) = (end.id(), rescue.id());
    stage.client.submit(flow).await?;
    stage.until_state(end, JobState::Succeeded).await?;
    stage.until_state(rescue, JobState::Cancelled).await?;
    stage.visit(&format!("#/jobs/{end}")).await?;
    stage
        .page
        .until("document.querySelectorAll('.graph .box').length === 5")
        .await?;
    stage
        .page
        .until("document.querySelectorAll('.graph .edge').length === 5")
        .await?;
    stage.page.until_text("if it failed").await?;
    stage
        .page
        .click(&format!(".graph a[href$=\"{rescue}\"]"))
        .await?;
    stage
        .page
        .until(&format!("location.hash === '#/jobs/{rescue}'"))
        .await?;
    stage
        .page
        .until("document.querySelector('h1 + .sub')?.textContent.includes('cancelled')")
        .await
}

/// Returns the number of requests whose URL contains this text.
fn asked(page: &Page, what: &str) -> usize {
    let requests = page.requests();
    requests.iter().filter(|url| url.contains(what)).count()
}

/// The job page requests the graph of jobs once. It requests the graph again only when a job in the
/// graph changes its state.
pub(crate) async fn lineage(stage: &mut Stage) -> Result<()> {
    let hour = Duration::from_secs(3_600);
    let flow = Workflow::new();
    let first = flow.add(echo("first").delay(hour));
    let second = flow.add(echo("second")).after(&first);
    let (first, second) = (first.id(), second.id());
    stage.client.submit(flow).await?;
    let page = &stage.page;
    stage.visit(&format!("#/jobs/{second}")).await?;
    page.until("document.querySelectorAll('.graph .edge.waiting').length === 1")
        .await?;
    page.until("document.querySelector('.link').dataset.state === 'live'")
        .await?;
    let emit = |job: &str, state: &str, attempts: u32| {
        format!(
            "document.documentElement.ratchet.emit('jobs', {{ jobs: [{{ id: '{job}', state: '{state}', attempts: {attempts} }}], dropped: 0 }})"
        )
    };
    let (history, graph) = (
        &format!("/api/jobs/{second}/history"),
        format!("/api/jobs/{second}/graph"),
    );
    let details = asked(page, history);
    for attempts in 0..3 {
        page.eval(&emit(&first.to_string(), "pending", attempts))
            .await?;
        page.eval(&emit(&second.to_string(), "blocked", attempts))
            .await?;
        let told = details + usize::try_from(attempts)?;
        eventually("the job is read again", || async move {
            Ok(asked(page, history) > told)
        })
        .await?;
    }
    ensure!(
        asked(page, &graph) == 1,
        "expected one read of the graph, because no job changed its state"
    );
    stage.client.cancel(first).await?;
    page.until("document.querySelectorAll('.graph .edge.broken').length === 1")
        .await?;
    page.until_text("cancelled").await?;
    ensure!(
        asked(page, &graph) <= 3,
        "expected at most 3 reads of the graph"
    );
    Ok(())
}

pub(crate) async fn filters(stage: &mut Stage) -> Result<()> {
    let client = stage.client.clone();
    let mut jobs = Vec::new();
    for number in 0..60 {
        let queue = if number % 2 == 0 { "even" } else { "odd" };
        jobs.push(echo("x").queue(queue).tag(&format!("t{}", number % 3)));
    }
    client.enqueue_all(&jobs).await?;
    client.pause(jobs[7].id()).await?;
    let rows =
        |count: usize| format!("document.querySelectorAll('main tbody tr').length === {count}");
    let page = &stage.page;

    stage.visit("#/jobs?limit=25").await?;
    page.until(&rows(25)).await?;
    let newest = page
        .eval("document.querySelector('main tbody tr').dataset.key")
        .await?;
    ensure!(
        newest == jobs[59].id().to_string(),
        "expected the newest job in the first row, found {newest}"
    );
    for (after, first) in [(25, 34), (10, 9)] {
        page.click("[data-action=on]").await?;
        page.until(&rows(after)).await?;
        page.until(&format!(
            "document.querySelector('tr[data-key=\"{}\"]')",
            jobs[first].id()
        ))
        .await?;
    }
    page.until("document.querySelector('[data-action=on]').disabled")
        .await?;
    page.click("[data-action=back]").await?;
    page.until(&rows(25)).await?;
    page.click("[data-action=back]").await?;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{}\"]')",
        jobs[59].id()
    ))
    .await?;

    stage.visit("#/jobs?limit=100&queue=odd").await?;
    page.until(&rows(30)).await?;
    page.click("[data-state=paused]").await?;
    page.until(&rows(1)).await?;
    let hash = page.eval("location.hash").await?;
    let hash = hash.as_str().context("no hash")?.to_owned();
    ensure!(
        hash.contains("state=paused") && hash.contains("queue=odd"),
        "{hash}"
    );
    // The URL contains all settings of the page, so another visit to this URL shows the same jobs.
    stage.visit(&hash).await?;
    page.until(&rows(1)).await?;
    page.click("[data-state=paused]").await?;
    page.until(&rows(30)).await?;
    page.click("input[name=tag]").await?;
    page.write("t0").await?;
    page.key("Enter").await?;
    page.until(&rows(10)).await?;
    page.until("location.hash.includes('tag=t0')").await
}

/// The page of a succeeded job does not show the error of an earlier attempt as the job's outcome.
pub(crate) async fn earlier_error(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let error = "the disk was full".to_owned();
    let job = Second { error }.into_job();
    let job = job.retry(RetryPolicy::fixed(3, Duration::from_millis(1)));
    let job = stage.client.enqueue(job).await?.id();
    stage.until_state(job, JobState::Succeeded).await?;
    let page = &stage.page;
    stage.visit(&format!("#/jobs/{job}")).await?;
    page.until_text("Error of an earlier attempt").await?;
    page.until_text("the job has succeeded since").await?;
    ensure!(
        page.eval("[...document.querySelectorAll('h2')].some((one) => one.textContent === 'Last error') || [...document.querySelectorAll('.block.bad')].some((one) => !one.closest('.attempt'))")
            .await?
            == false,
        "expected the error of an earlier attempt not to be shown as the outcome"
    );
    stage.visit("#/jobs").await?;
    page.until(&format!("document.querySelector('tr[data-key=\"{job}\"]')?.textContent.includes('an earlier attempt failed:the disk was full')"))
        .await
}

/// The plot of queue depths marks the periods in which the server did not count jobs.
pub(crate) async fn uncounted(stage: &mut Stage) -> Result<()> {
    stage.visit("#/nowhere").await?;
    let page = &stage.page;
    page.eval(
        "window.real = window.fetch; window.fetch = async (url, options) => {
            const answer = await real(url, options);
            if (!String(url).includes('api/overview')) return answer;
            const overview = await answer.json();
            const at = Date.parse(overview.at);
            overview.series.points = Array.from({ length: 200 }, (_, step) => ({
                at: new Date(at - (200 - step) * 3000).toISOString(), running: step % 5, pending: step < 199 ? null : 7,
                overdue_ms: 0, finished_per_s: 1, failed_per_s: 0, retried_per_s: 0, wait_ms: 3,
            }));
            return new Response(JSON.stringify(overview), { status: 200 });
        }, document.documentElement.ratchet.mute(), location.hash = '#/overview'",
    )
    .await?;
    let depth = "[...document.querySelectorAll('.panel')].find((one) => one.querySelector('h2')?.textContent === 'Depth')";
    page.until(&format!(
        "{depth}?.querySelector('.void')?.getBoundingClientRect().width > 200"
    ))
    .await?;
    page.until(&format!(
        "{depth}.querySelector('.void-text')?.textContent.includes('not counted')"
    ))
    .await?;
    // A single point without neighbours cannot be part of a line, so the plot shows the point as a
    // dot.
    page.until(&format!("{depth}.querySelector('circle.dot.line-1')"))
        .await?;
    // The other plots have a value at every time, so they mark no such periods.
    ensure!(
        page.eval("document.querySelectorAll('.plot .void').length")
            .await?
            == 1
    );
    Ok(())
}
