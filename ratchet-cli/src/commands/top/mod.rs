//! `ratchet top`: shows a live view of the cluster.

mod draw;
mod model;
mod read;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::style;
use ratchet::Client;
use ratchet::store_api::time::monotonic;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use self::model::{Model, Seen};
use self::read::Reader;
use crate::app::App;
use crate::args::Top;
use crate::exit::Failure;
use crate::interruptible;

/// Shortest allowed value of `--interval`. The minimum bounds the load on the database.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Width and height of the output of `--once`, in characters.
const PRINTED: (u16, u16) = (120, 40);

pub(super) async fn run(app: &mut App, what: Top) -> Result<(), Failure> {
    if what.interval < MIN_INTERVAL {
        return Err(Failure::usage("--interval must be at least 500ms"));
    }
    let has_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !(what.once || app.out.is_json() || has_terminal) {
        return Err(Failure::usage("there is no terminal to draw on")
            .remedy("--once prints the view once; --json prints a line for each read."));
    }
    interruptible(async {
        let client = app.client().await?;
        match (what.once, app.out.is_json()) {
            (true, _) => once(app, &client, what.interval).await,
            (false, true) => stream(app, &client, what.interval).await,
            (false, false) => live(&client, what.interval).await,
        }
    })
    .await
}

/// Prints the view once, after two reads of the database. Rates need two reads, because they are
/// computed from two heartbeats of each node.
async fn once(app: &mut App, client: &Client, pause: Duration) -> Result<(), Failure> {
    let mut reader = Reader::new(client);
    let mut model = Model::new(reader.read().await?);
    sleep(pause).await;
    model.update(reader.read().await?);
    if app.out.is_json() {
        return app.out.document(&model.view());
    }
    for line in printed(&model)? {
        app.out.line(line)?;
    }
    Ok(())
}

fn printed(model: &Model) -> Result<Vec<String>, Failure> {
    let mut terminal = Terminal::new(TestBackend::new(PRINTED.0, PRINTED.1))
        .map_err(|error| Failure::failed(error.to_string()))?;
    terminal
        .draw(|frame| draw::draw(frame, model))
        .map_err(|error| Failure::failed(error.to_string()))?;
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(PRINTED.0));
    let mut lines: Vec<String> = rows
        .map(|row| {
            let line: String = row.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines)
}

async fn stream(app: &mut App, client: &Client, pause: Duration) -> Result<(), Failure> {
    let mut reader = Reader::new(client);
    let mut model = Model::new(reader.read().await?);
    loop {
        sleep(pause).await;
        model.update(reader.read().await?);
        app.out.record(&model.view())?;
        app.out.flush()?;
    }
}

/// Shows the view on the terminal until a key or a signal ends it. Reading and drawing run
/// concurrently, so keys work even while the database does not respond.
async fn live(client: &Client, pause: Duration) -> Result<(), Failure> {
    let mut reader = Reader::new(client);
    let model = Model::new(reader.read().await?);
    heed_color(anstream::ColorChoice::global());
    let mut screen = Screen::open()?;
    let (tell, looks) = mpsc::channel(1);
    let Screen { terminal, keys, .. } = &mut screen;
    let draw = |model: &Model| {
        terminal.draw(|frame| draw::draw(frame, model))?;
        Ok(())
    };
    tokio::select! {
        () = asked_to_end() => Err(Failure::interrupted("terminated by a signal")),
        ended = show(draw, model, looks, keys) => ended,
        () = look(async || reader.read().await, pause, tell) => Ok(()),
    }
}

/// Turns colours off if `choice` is `Never`. Without this call, the terminal library would obey
/// only the variable `NO_COLOR`.
fn heed_color(choice: anstream::ColorChoice) {
    if choice == anstream::ColorChoice::Never {
        style::force_color_output(false);
    }
}

/// Waits for SIGTERM or SIGHUP. Because this function handles these signals, the program can
/// restore the terminal before it ends.
#[cfg(unix)]
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).ok();
    let kinds = (SignalKind::terminate(), SignalKind::hangup());
    let (Some(mut asked), Some(mut hung_up)) = (listen(kinds.0), listen(kinds.1)) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = asked.recv() => {}
        _ = hung_up.recv() => {}
    }
}

/// Waits forever, because this platform has no SIGTERM and no SIGHUP.
#[cfg(not(unix))]
async fn asked_to_end() {
    std::future::pending().await
}

/// Calls `once` after every `pause` and sends the result through `tell`. Returns when the receiver
/// is dropped.
async fn look(
    mut once: impl AsyncFnMut() -> Result<Seen, Failure>,
    pause: Duration,
    tell: mpsc::Sender<Result<Seen, Failure>>,
) {
    let mut ticks = interval_at(monotonic() + pause, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if tell.send(once().await).await.is_err() {
            return;
        }
    }
}

/// Draws the view whenever new data arrives and when a key requests it. Returns when a key ends the
/// view.
async fn show(
    mut draw: impl FnMut(&Model) -> Result<(), Failure>,
    mut model: Model,
    mut looks: mpsc::Receiver<Result<Seen, Failure>>,
    keys: &mut mpsc::Receiver<Key>,
) -> Result<(), Failure> {
    loop {
        draw(&model)?;
        tokio::select! {
            // If a key and new data are both ready, the key is handled first.
            biased;
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(Key::Interrupt) => return Err(Failure::interrupted("interrupted")),
                Some(Key::Redraw) => {}
            },
            Some(seen) = looks.recv() => match seen {
                Ok(seen) => model.update(seen),
                Err(failure) => model.failed(failure.message()),
            },
        }
    }
}

enum Key {
    Quit,
    Interrupt,
    Redraw,
}

/// The terminal while the view is shown. Dropping this value restores the terminal, also after a
/// panic.
struct Screen {
    terminal: ratatui::DefaultTerminal,
    keys: mpsc::Receiver<Key>,
    ended: Arc<AtomicBool>,
}

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init()?;
        let (send, keys) = mpsc::channel(16);
        let ended = Arc::new(AtomicBool::new(false));
        std::thread::spawn({
            let ended = Arc::clone(&ended);
            move || listen(&send, &ended)
        });
        Ok(Self {
            terminal,
            keys,
            ended,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

/// Sends each key that the user presses through `keys`. Returns when `ended` is true.
fn listen(keys: &mpsc::Sender<Key>, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let key = match event::poll(Duration::from_millis(100)) {
            Ok(false) => continue,
            Ok(true) => event::read().map(|event| meaning(&event)),
            Err(error) => Err(error),
        };
        let key = match key {
            Ok(None) => continue,
            Ok(Some(key)) => key,
            // Reading from the terminal fails if the terminal was closed.
            Err(_) => Key::Quit,
        };
        if keys.blocking_send(key).is_err() {
            return;
        }
    }
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                Some(Key::Interrupt)
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use ratchet::{NodeId, NodeTotals};
    use tokio::time::timeout;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(2);

    fn seen() -> Seen {
        model::tests::look(NodeId::new(), 10_000, NodeTotals::default())
    }

    #[test]
    fn without_colours_the_screen_has_none() {
        let red = || style::Colored::ForegroundColor(style::Color::Red).to_string();
        style::force_color_output(true);
        heed_color(anstream::ColorChoice::Auto);
        assert!(!red().is_empty());
        heed_color(anstream::ColorChoice::Never);
        assert_eq!(red(), "");
        style::force_color_output(true);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_heard_while_the_database_hangs() {
        let (press, mut keys) = mpsc::channel(1);
        let (tell, looks) = mpsc::channel(1);
        let (hangs, is_hanging) = tokio::sync::oneshot::channel();
        let mut hangs = Some(hangs);
        let once = async || {
            if let Some(hangs) = hangs.take() {
                hangs.send(()).unwrap();
            }
            pending().await
        };
        let view = async {
            tokio::select! {
                ended = show(|_| Ok(()), Model::new(seen()), looks, &mut keys) => ended,
                () = look(once, PAUSE, tell) => unreachable!("the read never returns in this test"),
            }
        };
        let user = async {
            is_hanging.await.unwrap();
            press.send(Key::Quit).await.unwrap();
        };
        let ended = timeout(100 * PAUSE, async { tokio::join!(view, user).0 }).await;
        assert_eq!(ended, Ok(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_seen_is_drawn_and_a_failure_ends_nothing() {
        let (press, mut keys) = mpsc::channel(1);
        let (tell, looks) = mpsc::channel(1);
        let mut left = 2;
        let once = async || {
            left -= 1;
            match left {
                1 => Err(Failure::failed("the database is unreachable")),
                0 => {
                    let mut back = seen();
                    back.database = "it is back".to_owned();
                    Ok(back)
                }
                _ => {
                    press.send(Key::Quit).await.unwrap();
                    pending().await
                }
            }
        };
        let mut drawn = Vec::new();
        let draw = |model: &Model| {
            let view = model.view();
            drawn.push((view.database.to_owned(), model.problem().map(str::to_owned)));
            Ok(())
        };
        let view = async {
            tokio::select! {
                ended = show(draw, Model::new(seen()), looks, &mut keys) => ended,
                () = look(once, PAUSE, tell) => unreachable!("the receiver is not dropped before `show` returns"),
            }
        };
        assert_eq!(timeout(100 * PAUSE, view).await, Ok(Ok(())));
        let first = "memory 1".to_owned();
        let away = Some("the database is unreachable".to_owned());
        let back = ("it is back".to_owned(), None);
        assert_eq!(drawn, [(first.clone(), None), (first, away), back]);
    }
}
