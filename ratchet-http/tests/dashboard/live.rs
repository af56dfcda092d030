//! Live updates: changing rows, many changes, and a server that becomes unreachable.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::time::monotonic;
use ratchet_core::{Job, JobState, NewJob};
use tokio::time::sleep;

use crate::jobs::Echo;
use crate::page::Page;
use crate::stage::{May, Stage};

fn echo() -> NewJob {
    Echo {
        text: "x".to_owned(),
    }
    .into_job()
}

pub(crate) async fn rows_change(stage: &mut Stage) -> Result<()> {
    let job = stage.client.enqueue(echo()).await?.id();
    stage.visit("#/jobs").await?;
    let page = &stage.page;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{job}\"]')?.textContent.includes('pending')"
    ))
    .await?;
    page.until("document.querySelector('.link').dataset.state === 'live'")
        .await?;
    page.eval(
        "window.kept = document.querySelector('main tbody tr'); kept.querySelector('a').focus()",
    )
    .await?;
    stage.work().await?;
    let page = &stage.page;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{job}\"]').textContent.includes('succeeded')"
    ))
    .await?;
    // The row is still the same element, and the focus is still in it.
    ensure!(
        page.eval("kept.isConnected && kept.contains(document.activeElement)")
            .await?
            == true
    );
    // New jobs are announced by a button, and do not move the shown rows.
    let fresh = stage.client.enqueue(echo()).await?.id();
    page.until("document.querySelector('[data-action=fresh]')")
        .await?;
    ensure!(
        page.eval("document.querySelectorAll('main tbody tr').length")
            .await?
            == 1
    );
    page.click("[data-action=fresh]").await?;
    page.until(&format!(
        "document.querySelector('tr[data-key=\"{fresh}\"]')"
    ))
    .await?;
    // The focus stays on a number of the overview while the number changes.
    stage.visit("#/overview").await?;
    stage
        .page
        .until("document.querySelector('[data-tile=Finished]')")
        .await?;
    stage
        .page
        .eval("document.querySelector('[data-tile=Finished]').focus()")
        .await?;
    stage.page.settle().await?;
    ensure!(
        stage
            .page
            .eval("document.activeElement.dataset.tile")
            .await?
            == "Finished"
    );
    // The page of one job is updated too.
    let later = stage
        .client
        .enqueue(echo().delay(Duration::from_secs(1)))
        .await?
        .id();
    stage.visit(&format!("#/jobs/{later}")).await?;
    stage
        .page
        .until("document.querySelector('h1 + .sub').textContent.includes('succeeded')")
        .await?;
    stage.until_state(later, JobState::Succeeded).await
}

/// The time for which a test sends a flood of events, in seconds.
const SECONDS: u64 = 5;

/// Measures the longest time between two frames in the page, and the longest delay of a key event.
const MEASURE: &str = "
    window.flood = { gap: 0, wait: 0, keys: 0, done: false };
    (() => {
        let last = performance.now();
        const frame = (now) => {
            flood.gap = Math.max(flood.gap, now - last);
            last = now;
            if (!flood.done) requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
        addEventListener('keydown', (event) => {
            flood.keys += 1;
            flood.wait = Math.max(flood.wait, performance.now() - event.timeStamp);
        });
    })()";

/// Presses keys during the flood, and returns what the page measured. The page must handle every
/// key and must not freeze. The limits detect a freeze, not a low frame rate, since the machine may
/// be busy.
async fn press_keys(page: &Page) -> Result<String> {
    const LONGEST: Duration = Duration::from_secs(5);
    let (begun, mut slowest) = (monotonic(), Duration::ZERO);
    let mut pressed = 0;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        page.key(if pressed % 2 == 0 { "j" } else { "k" }).await?;
        pressed += 1;
        slowest = slowest.max(page.answers_in().await?);
        sleep(Duration::from_millis(100)).await;
    }
    let seen = page.eval("flood.done = true, flood").await?;
    let told = format!("{seen}, slowest response {slowest:?}, {pressed} keys pressed");
    let keys = seen["keys"].as_u64();
    ensure!(
        keys == Some(pressed),
        "expected the page to handle all keys: {told}"
    );
    for what in ["gap", "wait"] {
        let millis = seen[what].as_f64().unwrap_or(f64::MAX);
        let longest = LONGEST.as_secs_f64() * 1_000.0;
        ensure!(millis < longest, "the page froze, {what}: {told}");
    }
    ensure!(slowest < LONGEST, "the page froze: {told}");
    Ok(told)
}

/// Shows a list of fifty jobs.
async fn show_fifty(stage: &Stage) -> Result<()> {
    let jobs: Vec<NewJob> = (0..50)
        .map(|_| echo().delay(Duration::from_secs(9_000)))
        .collect();
    stage.client.enqueue_all(&jobs).await?;
    stage.visit("#/jobs").await?;
    let page = &stage.page;
    page.until("document.querySelectorAll('main tbody tr').length === 50")
        .await?;
    page.until("document.querySelector('.link').dataset.state === 'live'")
        .await
}

/// Emits events as the server would send them, a thousand jobs a second in many small events, while
/// keys are pressed.
pub(crate) async fn flood(stage: &mut Stage) -> Result<()> {
    show_fifty(stage).await?;
    let page = &stage.page;
    page.eval(MEASURE).await?;
    page.eval("
        window.sent = 0;
        (() => {
            const ids = [...document.querySelectorAll('main tbody tr')].map((row) => row.dataset.key);
            const states = ['pending', 'running', 'succeeded', 'failed'];
            const { emit } = document.documentElement.ratchet;
            const begun = performance.now();
            const timer = setInterval(() => {
                const due = Math.floor(performance.now() - begun);
                const jobs = [];
                for (; sent < due; sent += 1) {
                    const known = sent % 2 === 0;
                    jobs.push({
                        id: known ? ids[sent % ids.length] : `ffffffff-0000-7000-8000-${String(sent).padStart(12, '0')}`,
                        kind: 'echo', queue: 'default', state: states[(sent >> 1) % 4],
                        progress: { percent: sent % 100, message: `step ${sent}` }, tags: [], attempts: sent % 5,
                    });
                }
                emit('jobs', { jobs, dropped: 0 });
                if (flood.done) clearInterval(timer);
            }, 20);
        })()").await?;
    let told = press_keys(page).await?;
    let seen = page.eval("({ sent, rows: document.querySelectorAll('main tbody tr').length, fresh: document.querySelector('[data-action=fresh]')?.textContent })").await?;
    let told = format!("{seen}, {told}");
    ensure!(
        seen["sent"].as_u64() >= Some(1_000 * SECONDS),
        "expected 1,000 events per second: {told}"
    );
    ensure!(
        seen["rows"] == 50,
        "expected 50 rows, found another number: {told}"
    );
    let fresh = seen["fresh"].as_str().unwrap_or_default();
    ensure!(fresh.contains("1,000 or more new"), "{told}");
    eprintln!("flood: {told}");
    Ok(())
}

/// Enqueues and runs a thousand jobs a second, so that the events come from the server.
pub(crate) async fn flood_of_jobs(stage: &mut Stage) -> Result<()> {
    const BATCH: u64 = 100;
    show_fifty(stage).await?;
    stage.work().await?;
    let page = &stage.page;
    page.eval(MEASURE).await?;
    let client = stage.client.clone();
    let enqueuing = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(BATCH));
        for _ in 0..1_000 * SECONDS / BATCH {
            pace.tick().await;
            let jobs: Vec<NewJob> = (0..BATCH).map(|_| echo()).collect();
            client.enqueue_all(&jobs).await?;
        }
        anyhow::Ok(())
    });
    let told = press_keys(page).await?;
    enqueuing.await??;
    let rows = page.eval("document.querySelectorAll('main tbody tr').length");
    ensure!(
        rows.await? == 50,
        "expected 50 rows, found another number: {told}"
    );
    page.until_text("1,000 or more new").await?;
    let heard = page.eval("document.documentElement.ratchet.jobs").await?;
    eprintln!("flood of jobs: {heard} updates received, {told}");
    Ok(())
}

pub(crate) async fn reconnects(stage: &mut Stage) -> Result<()> {
    let first = stage
        .client
        .enqueue(echo().delay(Duration::from_secs(900)))
        .await?
        .id();
    stage.visit("#/jobs").await?;
    stage
        .page
        .until(&format!(
            "document.querySelector('tr[data-key=\"{first}\"]')"
        ))
        .await?;
    stage
        .page
        .until("document.querySelector('.link').dataset.state === 'live'")
        .await?;
    stage.stop_serving().await?;
    stage
        .page
        .until("document.querySelector('.link').dataset.state === 'lost'")
        .await?;
    stage
        .page
        .until("!document.getElementById('banner').hidden")
        .await?;
    // The page keeps showing its data, and new requests fail with a message.
    ensure!(
        stage
            .page
            .eval("document.querySelectorAll('main tbody tr').length")
            .await?
            == 1
    );
    stage.page.key("r").await?;
    stage
        .page
        .until_text("The server cannot be reached")
        .await?;
    let second = stage
        .client
        .enqueue(echo().delay(Duration::from_secs(900)))
        .await?
        .id();
    stage.serve(May::Write).await?;
    stage
        .page
        .until("document.querySelector('.link').dataset.state === 'live'")
        .await?;
    stage
        .page
        .until("document.getElementById('banner').hidden")
        .await?;
    stage
        .page
        .until(&format!(
            "document.querySelector('tr[data-key=\"{second}\"]')"
        ))
        .await?;
    stage
        .page
        .until("!document.querySelector('.alert.bad')")
        .await?;
    ensure!(
        stage
            .page
            .eval("document.documentElement.ratchet.opened")
            .await?
            == 2
    );
    stage.page.forget();
    Ok(())
}
