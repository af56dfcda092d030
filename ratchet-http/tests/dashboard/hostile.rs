//! Text that looks like markup is shown as text, wherever it comes from.

use std::time::Duration;

use anyhow::{Result, ensure};
use ratchet_core::model::Condition;
use ratchet_core::{Job, JobState, NewJob, Recurring};

use crate::jobs::{Broken, Echo, HOSTILE, Slow};
use crate::stage::{Stage, eventually};

/// As hostile as a name may be long.
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
    // Nobody has a handler for it: it stays, due, and is stranded.
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

    // Each place with the texts that must be readable there as they are.
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
    // What a link carries in its address, and what people are sent.
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
        "{place}: text became markup"
    );
    Ok(())
}
