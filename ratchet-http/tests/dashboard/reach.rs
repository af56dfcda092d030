//! Tests the access to the dashboard: by keyboard, on a phone, with each theme, with read-only
//! access, and after errors.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::{Job, JobId, JobState, NewJob, Ratchet, Recurring};
use ratchet_http::Limits;
use serde_json::json;

use crate::jobs::{Broken, Echo, Slow};
use crate::stage::{May, Stage};

const PLACES: [&str; 6] = [
    "overview",
    "jobs",
    "queues",
    "recurring",
    "batches",
    "cluster",
];

fn echo() -> NewJob {
    Echo {
        text: "x".to_owned(),
    }
    .into_job()
}

/// Creates at least one item of each kind.
pub(crate) async fn furnish(stage: &mut Stage) -> Result<JobId> {
    stage.work().await?;
    let client = stage.client.clone();
    let done = client.enqueue(echo().tag("first")).await?.id();
    let error = "a rather long error text without any end in sight, ".repeat(4);
    let dead = client
        .enqueue(
            Broken { error }
                .into_job()
                .tag("a-tag-that-is-longer-than-others"),
        )
        .await?
        .id();
    let slow = client
        .enqueue(
            Slow {
                message: "half of it".to_owned(),
            }
            .into_job(),
        )
        .await?
        .id();
    let later = echo()
        .delay(Duration::from_secs(7_200))
        .queue("a.queue.with.a.long.name.that.does.not.wrap");
    client.enqueue(later.lane("customer-4711")).await?;
    client
        .enqueue(NewJob::new("nobody.knows.this.kind", &0))
        .await?;
    client
        .recurring()
        .put(
            Recurring::cron("0 3 * * *")
                .zone("Europe/Berlin")
                .job(echo())
                .named("nightly"),
        )
        .await?;
    let batch = client.create_batch().await?;
    client
        .enqueue_all(&[
            echo().in_batch(batch),
            echo()
                .after(done, ratchet_core::Condition::Succeeded)
                .in_batch(batch),
        ])
        .await?;
    client.close_batch(batch).await?;
    client.pause_queue("paused").await?;
    stage.until_state(dead, JobState::Failed).await?;
    stage.until_state(slow, JobState::Running).await?;
    Ok(slow)
}

pub(crate) async fn read_only(stage: &mut Stage) -> Result<()> {
    stage.serve(May::Read).await?;
    let job = stage
        .client
        .enqueue(echo().delay(Duration::from_secs(900)))
        .await?
        .id();
    let page = &stage.page;
    for place in ["jobs", "queues", &format!("jobs/{job}")] {
        stage.visit(&format!("#/{place}")).await?;
        page.until("document.querySelector('[data-read-only]')")
            .await?;
        page.until("document.querySelector('main [data-action][title*=\"refuses writes\"]')")
            .await?;
        let open = "[...document.querySelectorAll('main .button[data-action]')].filter((one) => one.dataset.action !== 'on' \
                    && one.dataset.action !== 'back' && one.getAttribute('aria-disabled') !== 'true').length";
        ensure!(
            page.eval(open).await? == 0,
            "{place}: expected no enabled button for a write"
        );
    }
    page.click("[data-action=cancel]").await?;
    page.until_text("without an authorizer").await?;
    page.until_text("Hidden: this API does not show payloads")
        .await?;
    let posts = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/cancel')).length";
    ensure!(
        page.eval(posts).await? == 0,
        "expected the page not to send the refused request"
    );
    ensure!(
        stage
            .client
            .job(job)
            .await?
            .is_some_and(|job| job.state == JobState::Pending)
    );
    Ok(())
}

pub(crate) async fn problems(stage: &mut Stage) -> Result<()> {
    let page = &stage.page;
    stage.visit(&format!("#/jobs/{}", JobId::new())).await?;
    page.until("document.querySelector('[role=alert]')?.textContent.includes('404 not_found')")
        .await?;
    stage.visit("#/jobs/not-an-id").await?;
    page.until("document.querySelector('[role=alert]')?.textContent.includes('422 invalid')")
        .await?;
    for nowhere in ["#/nowhere", "#/constructor"] {
        stage.visit(nowhere).await?;
        page.until_text("There is no such page").await?;
    }
    // A client cancels the job after the page has read it. The page then reports that the job
    // cannot be paused.
    let job = stage
        .client
        .enqueue(echo().delay(Duration::from_secs(900)))
        .await?
        .id();
    stage.visit(&format!("#/jobs/{job}")).await?;
    page.until_text("pending").await?;
    page.eval("document.documentElement.ratchet.mute()").await?;
    stage.client.cancel(job).await?;
    page.click(".head [data-action=pause]").await?;
    page.until("document.querySelector('#notices [role=alert]')?.textContent.includes('conflict')")
        .await
}

/// The server returns pages of at most two items. The dashboard still shows all items, and its bulk
/// actions apply to all of them.
pub(crate) async fn small_limits(stage: &mut Stage) -> Result<()> {
    let job = furnish(stage).await?;
    for error in ["one", "two", "three"] {
        let error = error.to_owned();
        let dead = stage.client.enqueue(Broken { error }.into_job()).await?;
        stage.until_state(dead.id(), JobState::Failed).await?;
    }
    stage.client.pause_queue("..").await?;
    stage
        .serve_within(May::Write, Limits::default().page(2))
        .await?;
    let page = &stage.page;
    let shown = "!document.querySelector('main .loading') && document.querySelector('main .panel, main .tile')";
    let job = format!("jobs/{job}");
    for place in PLACES.into_iter().chain(["jobs?limit=100", &job]) {
        stage.visit(&format!("#/{place}")).await?;
        page.until(shown).await?;
        ensure!(
            page.eval("document.querySelector('[role=alert]')").await? == json!(null),
            "{place}: expected no alert on the page"
        );
    }
    // The overview shows more dead letters than the page limit allows. The server reads them in the
    // background, where the limit does not apply.
    stage.visit("#/overview").await?;
    page.until(
        "document.querySelectorAll('table[aria-label=\"Latest failures\"] tbody tr').length === 4",
    )
    .await?;
    stage.visit("#/jobs?state=failed").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 2")
        .await?;
    page.click("thead input[type=checkbox]").await?;
    page.click("[data-action=everything]").await?;
    page.click("[data-action=bulk-delete]").await?;
    page.confirm().await?;
    page.until_text("4 deleted").await?;
    // The queue `..` cannot be part of a URL. If the user acts on this queue, the page reports
    // this.
    stage.visit("#/queues").await?;
    page.click("tr[data-key='..'] [data-action=resume]").await?;
    page.until_text("This name cannot be part of a URL").await
}

pub(crate) async fn keys(stage: &mut Stage) -> Result<()> {
    furnish(stage).await?;
    let page = &stage.page;
    stage.visit("#/cluster").await?;
    page.key("Tab").await?;
    page.until("document.activeElement.id === 'skip'").await?;
    page.key("Enter").await?;
    page.until("document.activeElement.id === 'main'").await?;
    for place in PLACES {
        page.key("g").await?;
        page.key(&place[..1]).await?;
        page.until(&format!(
            "location.hash === '#/{place}' && document.querySelector('h1')"
        ))
        .await?;
        page.until(&format!(
            "document.querySelector('[aria-current=page]').hash === '#/{place}'"
        ))
        .await?;
        page.until("document.activeElement.tagName === 'H1'")
            .await?;
    }
    // The focus stays inside the help dialog while the dialog is open.
    page.key_with("?", 8).await?;
    page.until("document.querySelector('dialog[open]')?.textContent.includes('go to the jobs')")
        .await?;
    for _ in 0..3 {
        page.key("Tab").await?;
        ensure!(page.eval("document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement)").await? == true);
    }
    page.key("Escape").await?;
    page.until("!document.querySelector('dialog')").await?;
    // The user can find, select, open and pause a job without the mouse.
    page.key("g").await?;
    page.key("j").await?;
    page.until("document.querySelectorAll('main tbody tr').length > 3")
        .await?;
    page.key("j").await?;
    page.until("document.querySelector('tr.here') === document.querySelector('main tbody tr')")
        .await?;
    page.key("x").await?;
    page.until("document.querySelector('[data-chosen]').dataset.chosen === '1'")
        .await?;
    page.key("/").await?;
    page.until("document.activeElement.name === 'kind'").await?;
    page.write("nobody.knows.this.kind").await?;
    page.key("Enter").await?;
    page.until("document.querySelectorAll('main tbody tr').length === 1")
        .await?;
    page.key("Escape").await?;
    page.key("j").await?;
    page.key("Enter").await?;
    page.until("location.hash.startsWith('#/jobs/') && document.querySelector('.head [data-action=pause]')").await?;
    let mut presses = 0;
    while page.eval("document.activeElement.dataset?.action").await? != "pause" {
        page.key("Tab").await?;
        presses += 1;
        ensure!(
            presses < 40,
            "expected to reach the button within 40 presses of Tab"
        );
    }
    let ring = "getComputedStyle(document.activeElement).outlineStyle";
    ensure!(
        page.eval(ring).await? == "solid",
        "expected a visible focus"
    );
    page.key("Enter").await?;
    page.until("document.querySelector('h1 + .sub').textContent.includes('paused')")
        .await?;
    ensure!(
        page.eval("document.activeElement.dataset.action").await? == "pause",
        "expected the focus to stay on the button"
    );
    // The user can read plots with the keyboard and with a screen reader.
    stage.visit("#/overview").await?;
    page.until("document.querySelector('.plot[aria-label*=\"finished: now\"]')")
        .await?;
    page.eval("document.querySelector('.plot').focus()").await?;
    page.key("ArrowLeft").await?;
    page.until("!document.querySelector('.plot .tip').hidden")
        .await
}

pub(crate) async fn phone(stage: &mut Stage) -> Result<()> {
    let job = furnish(stage).await?;
    stage.page.size(360, 740, true).await?;
    let mut places: Vec<String> = PLACES.iter().map(|place| (*place).to_owned()).collect();
    places.push(format!("jobs/{job}"));
    for place in places {
        stage.visit(&format!("#/{place}")).await?;
        stage.page.until("!document.querySelector('main .loading') && document.querySelector('main .panel, main .tile')").await?;
        let wide = "({ page: document.documentElement.scrollWidth, window: innerWidth, \
             out: [...document.querySelectorAll('main *')].filter((one) => !one.closest('.graph, .scroll, svg') && one.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((one) => one.outerHTML.slice(0, 200)) })";
        let seen = stage.page.eval(wide).await?;
        ensure!(
            seen["page"] == 360 && seen["window"] == 360 && seen["out"] == json!([]),
            "{place}: {seen}"
        );
        let tab = "(() => { const tab = document.querySelector('.ways [aria-current=page]').getBoundingClientRect(); return tab.left >= 0 && tab.right <= innerWidth; })()";
        ensure!(
            stage.page.eval(tab).await? == true,
            "{place}: expected the current tab to be visible"
        );
        let small = "[...document.querySelectorAll('main .button, main .choice button')].filter((one) => one.offsetHeight > 0 && one.offsetHeight < 30).map((one) => one.textContent)";
        ensure!(
            stage.page.eval(small).await? == json!([]),
            "{place}: expected buttons of at least 30 pixels"
        );
    }
    Ok(())
}

/// Returns the texts whose contrast with their background is below 4.5 to 1, by the formula of WCAG
/// 2.
const DIM: &str = "(() => {
    const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(srgb') ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
    const light = ([r, g, b]) => { const f = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
    const behind = (one) => { for (let at = one; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
    const bad = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const one = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !one.checkVisibility() || one.closest('noscript, .sr-only, option')) continue;
        const style = getComputedStyle(one);
        const [a, b] = [light(parse(one instanceof SVGElement ? style.fill : style.color)), light(behind(one))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) bad.push(`${one.tagName}.${one.className.baseVal ?? one.className} ${walk.currentNode.data.slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return [...new Set(bad)];
})()";

pub(crate) async fn colours(stage: &mut Stage) -> Result<()> {
    let job = furnish(stage).await?;
    let mut places: Vec<String> = PLACES.iter().map(|place| (*place).to_owned()).collect();
    places.push(format!("jobs/{job}"));
    for scheme in ["light", "dark"] {
        stage.page.scheme(scheme).await?;
        for place in &places {
            stage.visit(&format!("#/{place}")).await?;
            stage.page.until("!document.querySelector('main .loading') && document.querySelector('main .panel, main .tile')").await?;
            let dim = stage.page.eval(DIM).await?;
            ensure!(
                dim == json!([]),
                "{scheme}, {place}: expected enough contrast, found {dim}"
            );
        }
    }
    let page = &stage.page;
    let ground = "getComputedStyle(document.body).backgroundColor";
    let dark = page.eval(ground).await?;
    page.key("t").await?;
    let light = page.eval(ground).await?;
    ensure!(dark != light, "expected the key `t` to change the theme");
    stage.visit("#/jobs").await?;
    ensure!(
        page.eval(ground).await? == light,
        "expected the chosen theme to be kept"
    );
    page.click("[aria-label='Light or dark']").await?;
    page.until(&format!("{ground} === {dark}")).await
}

/// A node label of the maximum length, without spaces, fits into the pages. The node with this
/// label runs a job and leads.
pub(crate) async fn long_labels(stage: &mut Stage) -> Result<()> {
    let second = Duration::from_secs(1);
    let node = Ratchet::builder(Arc::clone(&stage.store))
        .label(&"w".repeat(128))
        .register::<Slow>()
        .heartbeat_interval(second)
        .drain_grace(second)
        .build()?;
    stage.run(node).await?;
    let message = "half of it".to_owned();
    let slow = stage.client.enqueue(Slow { message }.into_job()).await?;
    stage.until_state(slow.id(), JobState::Running).await?;
    let page = &stage.page;
    for width in [1280, 1440] {
        page.size(width, 900, false).await?;
        for place in [
            "jobs".to_owned(),
            "cluster".to_owned(),
            "overview".to_owned(),
            format!("jobs/{}", slow.id()),
        ] {
            stage.visit(&format!("#/{place}")).await?;
            page.until("document.querySelector('main').textContent.includes('wwwwwwww')")
                .await?;
            let wide = "({ page: document.documentElement.scrollWidth - innerWidth,
                tables: [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 60)),
                labels: [...document.querySelectorAll('main td, main .badges, main .attempt .node')].filter((one) => one.checkVisibility() && one.textContent.includes('wwwwwwww') && one.getBoundingClientRect().width > innerWidth * 0.45).map((one) => one.className || one.tagName) })";
            let seen = page.eval(wide).await?;
            let is_narrow = |seen: &serde_json::Value| {
                seen["page"].as_i64() <= Some(0)
                    && seen["tables"] == json!([])
                    && seen["labels"] == json!([])
            };
            ensure!(
                is_narrow(&seen),
                "{place} at {width}: expected all labels to fit, found \
                 {seen}"
            );
        }
    }
    Ok(())
}
