//! Large numbers: matching jobs, wide graphs, equal failures, and many names.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::{Job, JobId, JobState, NewJob, Workflow};
use serde_json::json;

use crate::jobs::{Broken, Echo};
use crate::outage::LAMP;
use crate::stage::Stage;

fn later(kind: &str, number: usize) -> NewJob {
    NewJob::new(kind, &number).delay(Duration::from_secs(90_000))
}

const ASK: &str = "document.querySelector('dialog[open] h2')?.textContent";

/// Selects all matching jobs and presses the button of an action.
async fn press(stage: &Stage, action: &str) -> Result<()> {
    let page = &stage.page;
    page.until("document.querySelectorAll('main tbody tr').length === 50")
        .await?;
    page.until("!document.querySelector('thead input').checked")
        .await?;
    page.click("thead input[type=checkbox]").await?;
    page.click("[data-action=everything]").await?;
    page.click(&format!("[data-action=bulk-{action}]")).await
}

pub(crate) async fn matching(stage: &mut Stage) -> Result<()> {
    let client = stage.client.clone();
    let few: Vec<NewJob> = (0..60).map(|n| later("few", n)).collect();
    client.enqueue_all(&few).await?;
    client.pause(few[3].id()).await?;
    let many: Vec<NewJob> = (0..5_050).map(|n| later("many", n)).collect();
    client.enqueue_all(&many).await?;
    let more: Vec<NewJob> = (0..5_050).map(|n| later("many", n)).collect();
    client.enqueue_all(&more).await?;
    let page = &stage.page;
    // The count is exact, and includes only jobs that can be paused.
    stage.visit("#/jobs?kind=few").await?;
    press(stage, "pause").await?;
    page.until(&format!("{ASK} === 'Pause 59 jobs?'")).await?;
    page.key("Escape").await?;
    page.until("!document.querySelector('dialog')").await?;
    // Without a matching job there is no dialog.
    page.click("[data-action=bulk-retry]").await?;
    page.until_text("None of them is failed").await?;
    ensure!(
        page.eval("document.querySelector('dialog')")
            .await?
            .is_null()
    );
    // A failed count is not shown as zero.
    page.eval(
        "window.real = window.fetch; window.fetch = (url, options) => String(url).includes('jobs/count?')
            ? Promise.reject(new Error('cut')) : real(url, options), 0",
    )
    .await?;
    page.click("[data-action=bulk-cancel]").await?;
    page.until(&format!("{ASK} === 'Cancel all that match?'"))
        .await?;
    page.until("document.querySelector('dialog').textContent.includes('could not be counted')")
        .await?;
    page.until(&format!("{LAMP} === 'failing'")).await?;
    page.key("Escape").await?;
    page.until("!document.querySelector('dialog')").await?;
    // The failed count does not change the connection state, because the page does not need the
    // count.
    page.until(&format!("{LAMP} === 'live'")).await?;
    // There are more jobs than the server counts.
    stage.visit("#/jobs?kind=many").await?;
    press(stage, "cancel").await?;
    page.until(&format!("{ASK} === 'Cancel at least 10,000 jobs?'"))
        .await
}

pub(crate) async fn counts(stage: &mut Stage) -> Result<()> {
    let client = stage.client.clone();
    let jobs: Vec<NewJob> = (0..1_200)
        .map(|n| later(if n < 3 { "few" } else { "many" }, n).queue("q"))
        .collect();
    client.enqueue_all(&jobs).await?;
    client.pause(jobs[0].id()).await?;
    let page = &stage.page;
    let shows = |state: &str, text: &str| {
        format!("document.querySelector('[data-state={state}] .tally').textContent === '{text}'")
    };
    for (filter, counts) in [
        ("", [("pending", "1,199"), ("paused", "1"), ("failed", "0")]),
        (
            "?queue=q",
            [("pending", "1,199"), ("paused", "1"), ("failed", "0")],
        ),
        (
            "?kind=few",
            [("pending", "2"), ("paused", "1"), ("failed", "0")],
        ),
        (
            "?kind=many",
            [("pending", "1,000+"), ("paused", "0"), ("failed", "0")],
        ),
    ] {
        stage.visit(&format!("#/jobs{filter}")).await?;
        for (state, text) in counts {
            page.until(&shows(state, text)).await?;
        }
    }
    // A changed filter starts a new count.
    page.click("input[name=kind]").await?;
    page.eval("document.activeElement.select()").await?;
    page.write("few").await?;
    page.key("Enter").await?;
    page.until(&shows("pending", "2")).await
}

/// Replaces `fetch`, so that a count ends only when the test calls `release`, and `counts` contains
/// the abort signal of each count. Replaces the page's timer, so that it fires only when the test
/// calls `again`.
const HOLD: &str = "(() => {
    const [real, every] = [window.fetch, window.setInterval];
    window.counts = [];
    window.fetch = (url, options) => {
        if (!String(url).includes('jobs/counts')) return real(url, options);
        window.counts.push(options.signal);
        return new Promise((answer, fail) => {
            window.release = () => answer(real(url, options));
            options.signal.addEventListener('abort', () => fail(options.signal.reason));
        });
    };
    window.setInterval = (run, ms) => ms === 10000 ? (window.again = run, 0) : every(run, ms);
})()";

pub(crate) async fn one_count_at_a_time(stage: &mut Stage) -> Result<()> {
    stage.client.enqueue(later("few", 1)).await?;
    stage.visit("#/nowhere").await?;
    let page = &stage.page;
    page.eval(HOLD).await?;
    page.eval("location.hash = '#/jobs'").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 1")
        .await?;
    let held = "counts.map((one) => one.aborted)";
    // The timer does not abort a slow count.
    page.eval("again(), again()").await?;
    let seen = page.eval(held).await?;
    ensure!(seen == json!([false]), "counts overlap: {seen}");
    // A changed filter aborts the count for the previous filter.
    page.eval("location.hash = '#/jobs?kind=few'").await?;
    page.until("counts.length === 2").await?;
    let seen = page.eval(held).await?;
    ensure!(
        seen == json!([true, false]),
        "expected the old count to be aborted, found {seen}"
    );
    page.eval("again()").await?;
    ensure!(page.eval("counts.length").await? == 2);
    page.eval("release(), 0").await?;
    page.until("document.querySelector('[data-state=pending] .tally').textContent === '1'")
        .await
}

pub(crate) async fn names(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    stage
        .client
        .enqueue(later("nobody.knows", 1).queue("quiet"))
        .await?;
    stage.visit("#/jobs?state=running").await?;
    let page = &stage.page;
    let offers = |field: &str, name: &str| {
        format!(
            "[...(document.querySelector('input[name={field}]').list?.options ?? [])].some((one) => one.value === '{name}')"
        )
    };
    stage.client.pause_queue("held").await?;
    // The server reads nodes and queues in the background, so a name may appear late. Each time
    // that the field gets the focus, the page requests the names again.
    for (field, name) in [("kind", "echo"), ("queue", "quiet"), ("queue", "held")] {
        page.until(&format!(
            "(document.activeElement.blur(), document.querySelector('input[name={field}]').focus(), {})",
            offers(field, name)
        ))
        .await?;
    }
    stage.visit("#/jobs").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 1")
        .await?;
    page.click("input[name=kind]").await?;
    page.until(&offers("kind", "nobody.knows")).await
}

/// Returns whether the job of the page is visible in the graph.
const SEEN: &str = "(() => {
    const own = document.querySelector('.graph .this')?.getBoundingClientRect();
    const frame = document.querySelector('.graph')?.getBoundingClientRect();
    return own && own.left >= frame.left && own.right <= frame.right && own.top >= frame.top && own.bottom <= frame.bottom;
})()";

pub(crate) async fn fan_out(stage: &mut Stage) -> Result<()> {
    let flow = Workflow::new();
    let split = flow.add(later("images.split", 0));
    let resized: Vec<_> = (0..24)
        .map(|n| {
            let fetched = flow.add(later("images.fetch", n)).after(&split);
            flow.add(later("images.resize", n)).after(&fetched)
        })
        .collect();
    let pages = flow.add(later("pages.render", 0)).after(&split);
    let join = flow.add(later("album.publish", 0)).after_all(&resized);
    let last = flow.add(later("album.mail", 0)).after_all([&join, &pages]);
    let (join, one) = (join.id(), resized[17].id());
    drop(last);
    stage.client.submit(flow).await?;
    let page = &stage.page;
    let boxes =
        |count: usize| format!("document.querySelectorAll('.graph .box').length === {count}");
    stage.visit(&format!("#/jobs/{join}")).await?;
    page.until(&boxes(6)).await?;
    for text in ["24 × images.resize", "24 × images.fetch", "24 blocked"] {
        page.until(&format!("[...document.querySelectorAll('.graph text')].some((one) => one.textContent === '{text}')"))
            .await?;
    }
    page.until("document.querySelectorAll('.graph .edge').length === 6")
        .await?;
    page.until(SEEN).await?;
    // A click on a group shows each of its jobs separately, and the job of the page stays in view.
    page.click(".graph .heap").await?;
    page.until(&boxes(52)).await?;
    page.until(SEEN).await?;
    page.click("[data-action=fold]").await?;
    page.until(&boxes(6)).await?;
    // Pressing Enter on a group also shows each of its jobs separately.
    page.eval("document.querySelector('.graph .heap').focus()")
        .await?;
    page.key("Enter").await?;
    page.until(&boxes(52)).await?;
    // If the page is about one of the similar jobs, that job is drawn separately.
    stage.visit(&format!("#/jobs/{one}")).await?;
    page.until(&boxes(8)).await?;
    page.until("[...document.querySelectorAll('.graph text')].some((one) => one.textContent === '23 × images.resize')")
        .await?;
    page.until(SEEN).await
}

pub(crate) async fn dead_letters(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let broken = |error: &str, queue: &str| {
        let error = error.to_owned();
        Broken { error }.into_job().queue(queue)
    };
    let mut last: Option<JobId> = None;
    for (error, queue) in [
        ("the disk is full", "a"),
        ("the disk is full", "a"),
        ("the disk is gone", "a"),
        ("the disk is full", "b"),
        ("the disk is full", "a"),
    ] {
        let dead = stage.client.enqueue(broken(error, queue)).await?.id();
        stage.until_state(dead, JobState::Failed).await?;
        last = Some(dead);
    }
    let last = last.unwrap();
    stage.visit("#/overview").await?;
    let page = &stage.page;
    page.until(
        "document.querySelectorAll('table[aria-label=\"Latest failures\"] tbody tr').length === 3",
    )
    .await?;
    let row = format!("tr[data-key=\"{last}\"]");
    page.until(&format!(
        "document.querySelector('{row}')?.textContent.includes('3 ×')"
    ))
    .await?;
    page.click(&format!("{row} a[href*='state=failed']"))
        .await?;
    page.until("location.hash.includes('kind=broken') && location.hash.includes('queue=a')")
        .await?;
    page.until("document.querySelectorAll('main tbody tr').length === 4")
        .await?;
    let done = Echo {
        text: "x".to_owned(),
    };
    let done = stage.client.enqueue(done.into_job()).await?.id();
    stage.until_state(done, JobState::Succeeded).await
}
