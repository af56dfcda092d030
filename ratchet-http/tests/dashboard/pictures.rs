//! The pictures of the documentation, taken of a stage that looks like a working day.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::stage::Stage;

/// Where they go.
pub(crate) const DIRECTORY: &str = "RATCHET_DASHBOARD_PICTURES";

pub(crate) async fn take(stage: &mut Stage) -> Result<()> {
    let directory = PathBuf::from(env::var_os(DIRECTORY).context("no directory")?);
    let job = crate::reach::furnish(stage).await?;
    let pages = [
        ("overview", "overview".to_owned(), "light"),
        ("overview-dark", "overview".to_owned(), "dark"),
        ("jobs", "jobs".to_owned(), "light"),
        ("job", format!("jobs/{job}"), "light"),
        ("cluster", "cluster".to_owned(), "dark"),
    ];
    for (name, place, scheme) in pages {
        stage.page.scheme(scheme).await?;
        stage.visit(&format!("#/{place}")).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.page.picture(&directory.join(format!("{name}.png"))).await?;
    }
    Ok(())
}
