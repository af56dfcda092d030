//! Text that looks like markup is shown as text, wherever the text comes from.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::model::Condition;
use ratchet_core::{Job, JobState, NewJob, Recurring};
use serde_json::json;

use crate::jobs::{Broken, Echo, HOSTILE, Slow};
use crate::stage::{Stage, eventually};

/// A hostile text of the maximum length of a name.
const NAME: &str = "\"'><img src=x onerror=\"document.documentElement.dataset.hacked=1\">";

pub(crate) async fn text_is_text(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let client = stage.client.clone();
    let text = || HOSTILE.to_owned();
    let hour = Duration::from_secs(3600);
    let done = client
        .enqueue(Echo { text: text() }.into_job().tag(NAME))
        .await?
        .id();
    let dead = client
        .enqueue(Broken { error: text() }.into_job())
        .await?
        .id();
    let slow = client
        .enqueue(Slow { message: text() }.into_job())
        .await?
        .id();
    // No node has a handler for this job, so it stays due and is stranded.
    let odd = NewJob::new(NAME, HOSTILE)
        .queue(NAME)
        .lane(NAME)
        .tag(NAME)
        .unique_key(NAME)
        .idempotency_key(NAME);
    let odd = client.enqueue(odd).await?.id();
    client.set_permits(NAME, 2).await?;
    let picky = NewJob::new(NAME, HOSTILE).capability(NAME).permit(NAME);
    client.enqueue(picky).await?;
    let child = Echo { text: text() }
        .into_job()
        .after(odd, Condition::result_is(&format!("/{NAME}"), &1));
    client.enqueue(child).await?;
    let called = Echo { text: text() }.into_job().wait_for(NAME, hour);
    let called = client.enqueue(called).await?.id();
    client
        .recurring()
        .put(
            Recurring::every(hour)
                .job(NewJob::new(NAME, HOSTILE).queue(NAME))
                .named(NAME),
        )
        .await?;
    stage.until_state(done, JobState::Succeeded).await?;
    stage.until_state(dead, JobState::Failed).await?;
    eventually("the progress is stored", || async {
        Ok(client
            .job(slow)
            .await?
            .is_some_and(|job| job.progress.is_some()))
    })
    .await?;

    // The pages, each with the texts that it must show unchanged.
    let places = [
        (
            "#/overview".to_owned(),
            vec![
                "onerror=\"document.documentElement.dataset.hacked=1\"><script>",
                "no node can run",
            ],
        ),
        ("#/jobs".to_owned(), vec![HOSTILE, NAME]),
        (format!("#/jobs/{done}"), vec!["<script>document", "Result"]),
        (format!("#/jobs/{dead}"), vec![HOSTILE]),
        (format!("#/jobs/{slow}"), vec![HOSTILE, "Checkpoint"]),
        (
            format!("#/jobs/{odd}"),
            vec![NAME, "Unique key", "Workflow"],
        ),
        (format!("#/jobs/{called}"), vec![NAME, "Signal"]),
        ("#/queues".to_owned(), vec![NAME]),
        ("#/recurring".to_owned(), vec![NAME]),
        ("#/cluster".to_owned(), vec![NAME]),
    ];
    for (place, texts) in places {
        stage.visit(&place).await?;
        for text in texts {
            stage.page.until_text(text).await?;
        }
        unhurt(stage, &place).await?;
    }
    // A link whose URL contains a hostile tag shows the jobs with this tag.
    stage.visit("#/jobs").await?;
    stage
        .page
        .click(&format!("tr[data-key=\"{odd}\"] .badge.plain"))
        .await?;
    stage.page.until("location.hash.includes('tag=')").await?;
    stage
        .page
        .until(&format!("document.querySelector('tr[data-key=\"{odd}\"]')"))
        .await?;
    stage
        .page
        .until("document.querySelector('input[name=tag]').value.includes('onerror')")
        .await?;
    for place in [
        "#/<script>document.documentElement.dataset.hacked=1</script>",
        "#/jobs?kind=<img src=x onerror=alert(1)>",
        "#/jobs/<b>x",
        "#/%",
    ] {
        stage.visit(place).await?;
        unhurt(stage, place).await?;
    }
    Ok(())
}

async fn unhurt(stage: &Stage, place: &str) -> Result<()> {
    let hurt = "document.documentElement.dataset.hacked !== undefined \
                || document.querySelector('body img, body script, body iframe, [onerror], a[href^=javascript]') !== null";
    ensure!(
        stage.page.eval(hurt).await? == false,
        "{place}: expected text from jobs to stay text, found it as markup"
    );
    Ok(())
}

/// A text that changes the direction of text after it, by a control character and by Arabic
/// letters.
const TURNED: &str = "\u{202e}dna \u{645}\u{631}\u{62d}\u{628}\u{627} 12";

pub(crate) async fn scripts_are_isolated(stage: &mut Stage) -> Result<()> {
    stage.work().await?;
    let client = stage.client.clone();
    let text = || TURNED.to_owned();
    let odd = NewJob::new(TURNED, TURNED)
        .queue(TURNED)
        .lane(TURNED)
        .tag(TURNED)
        .capability(TURNED)
        .unique_key(TURNED);
    let odd = client.enqueue(odd).await?.id();
    let dead = Broken { error: text() }.into_job().tag(TURNED);
    let dead = client.enqueue(dead).await?.id();
    let slow = Slow { message: text() }.into_job();
    let slow = client.enqueue(slow).await?.id();
    let child = Echo { text: text() }
        .into_job()
        .after(odd, Condition::Ended)
        .wait_for(TURNED, Duration::from_secs(3_600));
    let child = client.enqueue(child).await?.id();
    client.set_permits(TURNED, 2).await?;
    let every = Recurring::every(Duration::from_secs(3_600));
    let every = every.job(NewJob::new(TURNED, &0).queue(TURNED));
    client.recurring().put(every.named(TURNED)).await?;
    stage.until_state(dead, JobState::Failed).await?;
    stage.until_state(slow, JobState::Running).await?;
    let page = &stage.page;
    for place in [
        "overview".to_owned(),
        "jobs".to_owned(),
        format!("jobs?queue={TURNED}"),
        format!("jobs/{odd}"),
        format!("jobs/{dead}"),
        format!("jobs/{slow}"),
        format!("jobs/{child}"),
        "queues".to_owned(),
        "recurring".to_owned(),
        "cluster".to_owned(),
    ] {
        stage.visit(&format!("#/{place}")).await?;
        page.until("document.querySelector('main').textContent.includes('dna') || document.querySelector('main').textContent.includes('u202e')")
            .await?;
        // Every text that changes the direction is in an element that isolates it, or between
        // isolating characters.
        let loose = "[...(function* (walk) { while (walk.nextNode()) yield walk.currentNode; })(document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT))]
            .filter((one) => /[\\u202e\\u0645]/.test(one.data) && !one.parentElement.closest('svg'))
            .filter((one) => !getComputedStyle(one.parentElement).unicodeBidi.startsWith('isolate')
                || (one.data.includes('\\u202e') && !one.data.trim().startsWith('\\u202e') && !one.data.trim().startsWith('…')))
            .map((one) => one.parentElement.outerHTML.slice(0, 200))";
        let loose = page.eval(loose).await?;
        ensure!(loose == json!([]), "{place}: {loose}");
        let marked = "[...document.querySelectorAll('[title], [aria-label]')].flatMap((one) => [one.title, one.getAttribute('aria-label')])
            .filter((text) => text?.includes('\\u202e') && !text.startsWith('\\u202e'))";
        let marked = page.eval(marked).await?;
        ensure!(marked == json!([]), "{place}: {marked}");
    }
    // Payloads are shown as JSON, in which these characters are escaped.
    stage.visit(&format!("#/jobs/{odd}")).await?;
    page.until("[...document.querySelectorAll('pre')].some((one) => one.textContent.includes('\\\\u202edna'))")
        .await?;
    // The words of a sentence around the name keep their order.
    stage.visit("#/queues").await?;
    page.click("main tbody tr:last-child [data-action=pause]")
        .await?;
    page.until("document.querySelector('dialog h2')?.textContent.endsWith('\\u2069?')")
        .await?;
    page.key("Escape").await
}
