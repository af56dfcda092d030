//! Asks the user for confirmation before an action.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Failure;
use crate::output::clean;

/// Returns `Ok` if the command line has `--yes`, or if the user confirms the action on the
/// terminal.
///
/// # Errors
/// Fails with [`Failure::unconfirmed`] if there is no terminal, or if the answer is not `y` or
/// `yes`.
pub(crate) async fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let what = clean(what);
    if !io::stdin().is_terminal() {
        let refusal = format!("cannot ask for confirmation without a terminal: {what}");
        return Err(
            Failure::unconfirmed(refusal).remedy("Nothing was changed. Give --yes to confirm.")
        );
    }
    let mut err = io::stderr();
    write!(err, "{what}. Continue? [y/N] ")?;
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
