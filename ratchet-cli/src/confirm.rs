//! Asking before much is changed.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Failure;
use crate::output::clean;

/// Goes on if `yes` was said on the command line, or is said now.
///
/// # Errors
/// [`Failure::unconfirmed`] if there is no terminal to ask on, or the answer is anything but yes.
pub(crate) async fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let what = clean(what);
    if !io::stdin().is_terminal() {
        let refusal = format!("{what}: not without being told to");
        return Err(Failure::unconfirmed(refusal)
            .remedy("Nothing was changed. Say --yes if that is what is meant."));
    }
    let mut err = io::stderr();
    write!(err, "{what}. Go on? [y/N] ")?;
    err.flush()?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer
        .await
        .map_err(|error| Failure::failed(error.to_string()))??;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::unconfirmed("not confirmed; nothing was changed")),
    }
}
