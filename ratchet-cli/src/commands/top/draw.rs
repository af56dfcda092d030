//! Draws the view of `ratchet top` on a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};
use ratchet::JobState;

use super::model::{Model, View};
use crate::output::{ago, bytes, clean, instant, number, since};

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const GOOD: Style = Style::new().fg(Color::Green);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let view = model.view();
    let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(3);
    let [head, nodes, queues, failed, foot] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Max(rows(view.cluster.nodes.len())),
        Constraint::Max(rows(view.queues.queues.len())),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, &view, model.problem());
    draw_nodes(frame, nodes, &view);
    draw_queues(frame, queues, &view);
    draw_failed(frame, failed, &view);
    frame.render_widget(Line::styled("q quits", DIM), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View<'_>, problem: Option<&str>) {
    let first = Line::from(vec![
        Span::styled(clean(view.database), BOLD),
        Span::raw(format!("  {}", instant(view.at.0))),
    ]);
    let nodes = match view.live_nodes {
        0 => Span::styled("no live nodes, so no job runs", WARN),
        live => {
            let (running, capacity) = (view.running, view.capacity);
            Span::raw(format!("nodes {live}   slots {running}/{capacity}"))
        }
    };
    let rates = match view.rates {
        None => "rates: not yet known".to_owned(),
        Some(rates) => {
            let wait = rates.wait_ms.map(|wait| since(Duration::from_millis(wait)));
            format!(
                "finished {:.1}/s   failed {:.1}/s   retried {:.1}/s   wait {}",
                rates.finished_per_s,
                rates.failed_per_s,
                rates.retried_per_s,
                wait.unwrap_or_else(|| "-".to_owned()),
            )
        }
    };
    let oldest = match view.oldest_due_ms {
        None => "nothing is late".to_owned(),
        Some(late) => format!("oldest due {} ago", since(Duration::from_millis(late))),
    };
    let mut second = vec![nodes, Span::raw(format!("   {rates}   {oldest}"))];
    if view.stranded > 0 {
        second.push(Span::styled(
            format!("   stranded routes {}", view.stranded),
            BAD,
        ));
    }
    let leaders = view.cluster.leaders.iter().map(|leader| {
        let who = leader.label.as_deref().or(leader.node.as_deref());
        format!("{} {}", leader.role, who.unwrap_or("none"))
    });
    let leaders = match leaders.collect::<Vec<_>>().join("   ") {
        none if none.is_empty() => "none".to_owned(),
        leaders => clean(&leaders),
    };
    let third = match problem {
        Some(problem) => Line::styled(clean(problem), BAD),
        None => Line::styled(format!("leaders: {leaders}"), DIM),
    };
    let lines: Vec<Line<'_>> = vec![first, Line::from(second), third];
    frame.render_widget(ratatui::widgets::Paragraph::new(lines), area);
}

fn block(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .title(title)
        .title_style(BOLD)
}

fn text(text: impl AsRef<str>) -> Cell<'static> {
    Cell::new(clean(text.as_ref()))
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let rows = view.cluster.nodes.iter().map(|node| {
        Row::new([
            text(&node.label),
            text(format!("{:?}", node.status).to_lowercase()).style(GOOD),
            text(format!("{}/{}", node.running, node.capacity)),
            text(
                node.cpu_percent
                    .map_or(String::new(), |cpu| format!("{cpu} %")),
            ),
            text(node.memory_bytes.map_or(String::new(), bytes)),
            text(ago(node.last_seen_at.0, view.at.0)),
            text(node.leads.join(", ")),
        ])
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Fill(1),
    ];
    let heads = [
        "NODE", "STATUS", "RUNNING", "CPU", "MEMORY", "SEEN", "LEADS",
    ];
    let table = Table::new(rows, widths).header(Row::new(heads).style(DIM));
    frame.render_widget(table.block(block("Nodes ")), area);
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let rows = view.queues.queues.iter().map(|queue| {
        let count = |state: JobState| {
            let count = queue.count(state.into());
            text(count.map_or_else(|| "-".to_owned(), number))
        };
        let late = queue.overdue_ms.map(Duration::from_millis);
        Row::new([
            text(&queue.name),
            text(if queue.paused { "paused" } else { "" }).style(WARN),
            count(JobState::Pending),
            count(JobState::Running),
            count(JobState::Blocked),
            count(JobState::Failed).style(BAD),
            text(late.map_or(String::new(), since)),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(14),
    ];
    let heads = [
        "QUEUE",
        "",
        "PENDING",
        "RUNNING",
        "BLOCKED",
        "FAILED",
        "OLDEST DUE",
    ];
    let table = Table::new(rows, widths).header(Row::new(heads).style(DIM));
    let counted = match view.queues.counts_at {
        Some(at) => format!("Queues (counted {}) ", ago(at.0, view.at.0)),
        None => "Queues ".to_owned(),
    };
    frame.render_widget(table.block(block(&counted)), area);
}

fn draw_failed(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let rows = view.failed.iter().map(|job| {
        Row::new([
            text(job.at.map_or(String::new(), |at| ago(at.0, view.at.0))),
            text(&job.kind),
            text(&job.queue),
            text(&job.error).style(BAD),
        ])
    });
    let widths = [
        Constraint::Length(16),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(4),
    ];
    let table = Table::new(rows, widths);
    frame.render_widget(table.block(block("Newest dead letters ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratchet::{NodeId, NodeTotals};

    use super::super::model::tests::look;
    use super::*;

    fn shown(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_on_the_screen() {
        let id = NodeId::new();
        let mut model = Model::new(look(id, 10_000, NodeTotals::new(100, 500, 90, 4, 6)));
        model.update(look(id, 15_000, NodeTotals::new(150, 1_500, 130, 14, 11)));
        let screen = shown(&model, 120, 24);
        let parts = [
            "memory 1",
            "nodes 1",
            "slots 3/32",
            "finished 10.0/s",
            "wait 20 ms",
            "stranded routes 1",
            "active",
            "mail",
            "paused",
            "1,234",
            "1 min 1 s",
            "no route to host",
            "1 s ago",
            "q quits",
        ];
        for part in parts {
            assert!(
                screen.contains(part),
                "expected `{part}` on the screen, found:\n{screen}"
            );
        }
        assert!(!screen.contains('\u{1b}'), "{screen}");
        model.failed("the database is unreachable");
        assert!(shown(&model, 120, 24).contains("the database is unreachable"));
    }

    #[test]
    fn small_terminals_do_not_panic() {
        let model = Model::new(look(NodeId::new(), 10_000, NodeTotals::default()));
        for (width, height) in [(1, 1), (10, 3), (40, 8)] {
            shown(&model, width, height);
        }
    }
}
