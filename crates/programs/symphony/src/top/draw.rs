//! The board on a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::board::{Board, TABLES};
use super::budgets;

/// The last line.
const KEYS: &str =
    "q quit  Tab table  up/down row  s sort by the next column  r reverse  Enter this sub-cluster alone  Esc all";
/// Lines of a table besides its rows: title and header.
const AROUND_ROWS: u16 = 2;
/// Between columns.
const COLUMN_SPACING: u16 = 2;

/// Draws everything; `now` determines the age of the data.
pub(super) fn draw(frame: &mut Frame, board: &Board, now: Duration) {
    let lines: Vec<_> = lines(board, now).into_iter().flat_map(|line| wrapped(line, frame.area().width)).collect();
    let [head, tables, foot] =
        Layout::vertical([Constraint::Length(lines.len() as u16), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(lines), head);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), foot);
    if board.screen.is_none() {
        return;
    }
    let lines_of = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(AROUND_ROWS);
    let needs = std::array::from_fn(|table| lines_of(board.rows(table).len()));
    let mut y = tables.y;
    for (table, height) in heights(tables.height, needs).into_iter().enumerate() {
        draw_table(frame, Rect { y, height, ..tables }, board, table);
        y += height;
    }
}

/// The lines of a wrapped line of text: an error message must not be cut at the edge.
fn wrapped((text, style): (String, Style), width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().filter(|last| last.chars().count() + word.chars().count() < usize::from(width));
        match last {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) => *last = format!("{last} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().filter(|line| !line.is_empty()).map(|line| Line::styled(line, style)).collect()
}

/// The lines above the tables.
fn lines(board: &Board, now: Duration) -> Vec<(String, Style)> {
    let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let mut lines = Vec::new();
    match &board.screen {
        Some((_, screen)) => lines.push((screen.headline(), Style::new().add_modifier(Modifier::BOLD))),
        None if board.error.is_none() => lines.push(("asking the cluster ...".to_owned(), Style::new())),
        None => {}
    }
    match (&board.error, &board.screen) {
        (Some(error), Some((at, _))) => {
            let age_s = now.saturating_sub(*at).as_secs();
            lines.push((format!("what follows is {age_s} s old: {error}"), alarm));
        }
        (Some(error), None) => lines.push((error.clone(), alarm)),
        (None, _) => {}
    }
    let notes = board.screen.iter().flat_map(|(_, screen)| &screen.notes);
    lines.extend(notes.map(|note| (note.clone(), Style::new().fg(Color::Yellow))));
    if let Some((_, screen)) = &board.screen {
        let budgets = budgets::lines(&screen.budgets, board.only.as_deref());
        lines.extend(budgets.into_iter().map(|line| (line, Style::new())));
    }
    lines
}

/// Lines for each table: as many as it needs if there are enough; otherwise small tables get all they need, and the
/// others share the rest.
fn heights(available: u16, needs: [u16; TABLES]) -> [u16; TABLES] {
    let (mut heights, mut left) = ([0; TABLES], available);
    let mut by_need: Vec<_> = (0..TABLES).collect();
    by_need.sort_by_key(|&table| needs[table]);
    for (done, table) in by_need.into_iter().enumerate() {
        heights[table] = needs[table].min(left / (TABLES - done) as u16);
        left -= heights[table];
    }
    heights
}

/// Widths of columns that fit: what is too much is taken from the right, where words are, and not from all, since half
/// a number is worse than none.
fn fitting(mut widths: Vec<u16>, available: u16) -> Vec<u16> {
    let spaces = u32::from(COLUMN_SPACING) * widths.len().saturating_sub(1) as u32;
    let needed = widths.iter().map(|&width| u32::from(width)).sum::<u32>() + spaces;
    let mut over = needed.saturating_sub(available.into());
    for width in widths.iter_mut().rev() {
        let cut = over.min((*width).into());
        *width -= cut as u16;
        over -= cut;
    }
    widths
}

fn draw_table(frame: &mut Frame, area: Rect, board: &Board, table: usize) {
    let Some((_, screen)) = &board.screen else { return };
    let (shown, rows, sort) = (&screen.tables[table], board.rows(table), board.sorts[table]);
    let heads = shown.header.iter().enumerate().map(|(column, head)| match (column == sort.column, sort.reversed) {
        (false, _) => (*head).to_owned(),
        (true, false) => format!("{head} v"),
        (true, true) => format!("{head} ^"),
    });
    let heads: Vec<_> = heads.collect();
    let width = |(column, head): (usize, &String)| {
        let cells = rows.iter().map(|row| row.cells[column].to_string().chars().count());
        cells.chain([head.chars().count()]).max().unwrap_or(0) as u16
    };
    let widths = fitting(heads.iter().enumerate().map(width).collect(), area.width);
    let widths: Vec<_> = widths.into_iter().map(Constraint::Length).collect();
    let is_number = |column: usize| rows.first().is_some_and(|row| row.cells[column].is_number());
    let line = |column: usize, text: String| {
        let line = Line::from(text);
        Cell::from(if is_number(column) { line.right_aligned() } else { line })
    };
    let header = heads.into_iter().enumerate().map(|(column, head)| line(column, head));
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::DIM));
    let of = |row: &&super::row::Row| {
        let cells = row.cells.iter().enumerate().map(|(column, cell)| line(column, cell.to_string()));
        let style = if row.alarming { Style::new().fg(Color::Yellow) } else { Style::new() };
        Row::new(cells).style(style)
    };
    let rows: Vec<_> = rows.iter().map(of).collect();
    let alone = board.only.as_ref().filter(|_| table > 0).map(|only| format!(" of {only}")).unwrap_or_default();
    let focused = board.focus == table;
    let title = Style::new().add_modifier(if focused { Modifier::BOLD | Modifier::REVERSED } else { Modifier::BOLD });
    let title = Line::styled(format!(" {}{alone} ({}) ", shown.title, rows.len()), title);
    let block = Block::new().borders(Borders::TOP).title(title);
    let marked = if focused { Modifier::REVERSED } else { Modifier::UNDERLINED };
    let drawn = Table::new(rows, widths)
        .header(header)
        .block(block)
        .column_spacing(COLUMN_SPACING)
        .row_highlight_style(Style::new().add_modifier(marked));
    let mut state = TableState::new().with_selected(board.marked_at(table));
    frame.render_stateful_widget(drawn, area, &mut state);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::Key;
    use super::super::screen::Screen;
    use super::*;
    use crate::inspect::scene::{advice, sample};

    fn drawn(board: &Board, (width, height): (u16, u16), now_s: u64) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, board, Duration::from_secs(now_s))).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn board() -> Board {
        let mut board = Board::default();
        board.take(Duration::from_secs(3), Ok(Screen::of(&sample(1), &sample(3))));
        board
    }

    #[test]
    fn all_tables_are_there_with_their_numbers() {
        let screen = drawn(&board(), (120, 16), 3);
        let expected = [
            "blue: epoch 4, log index 31, control leader n1; rates of the last 2.0 s",
            " sub-clusters (2) ",
            "SUBCLUSTER v  LEADER  TOKEN  MODELS  GPUS  RATE /S  BAD RATE  IDLE GPUS    DEMAND  QUEUE",
            "pool          n1          9       1     1      0.0         -    100.0 %  0.0 of 1      2",
            "spare         none        9       1     1      0.0         -          -         -      -",
            " models (2) ",
            "MODEL v",
        ];
        for (line, expected) in screen.iter().zip(expected) {
            assert!(
                line.starts_with(expected.trim_end()),
                "`{line}` does not begin with `{expected}`:\n{}",
                screen.join("\n")
            );
        }
        assert!(screen.iter().any(|line| line.starts_with(" GPUs (2) ")), "{}", screen.join("\n"));
        assert!(screen.last().unwrap().starts_with("q quit"), "{}", screen.join("\n"));
    }

    #[test]
    fn what_a_budget_should_buy_is_above_the_tables_and_too_wide_columns_are_cut_at_the_right() {
        let (before, mut now) = (sample(1), sample(3));
        now.view.subclusters.values_mut().next().unwrap().advice = Some(advice(Some(12.0)));
        let mut board = Board::default();
        board.take(Duration::from_secs(3), Ok(Screen::of(&before, &now)));
        let screen = drawn(&board, (104, 20), 3);
        assert!(
            screen[1].starts_with("pool wants 2 of kind a100 at 2.5 (1 there, 1 on order), 9 of kind t4"),
            "{screen:?}"
        );
        let row = screen.iter().find(|line| line.starts_with("pool  ")).unwrap();
        assert!(row.contains("  0.0 of 1      2  auto    2 a1"), "no number is cut: {row}");
        assert_eq!(fitting(vec![10, 5, 8], 27), [10, 5, 8]);
        assert_eq!(fitting(vec![10, 5, 8], 20), [10, 5, 1]);
        assert_eq!(fitting(vec![10, 5, 8], 9), [5, 0, 0]);
        assert_eq!(fitting(Vec::new(), 9), Vec::<u16>::new());
    }

    #[test]
    fn a_lost_cluster_is_a_line_over_what_was_known() {
        let mut board = Board::default();
        assert_eq!(drawn(&board, (60, 6), 0)[0], "asking the cluster ...");
        board.take(Duration::ZERO, Err("no scheduler replica answered".into()));
        assert_eq!(drawn(&board, (60, 6), 0)[0], "no scheduler replica answered");
        assert_eq!(drawn(&board, (16, 6), 0)[..2], ["no scheduler", "replica answered"]);
        let mut board = self::board();
        board.take(Duration::from_secs(9), Err("no scheduler replica answered".into()));
        let screen = drawn(&board, (120, 16), 10);
        assert_eq!(screen[1], "what follows is 7 s old: no scheduler replica answered");
        assert!(screen.iter().any(|line| line.starts_with("pool ")), "{}", screen.join("\n"));
    }

    #[test]
    fn it_fits_any_terminal_and_shows_the_marked_row() {
        let mut board = board();
        board.press(Key::NextTable);
        board.press(Key::Down);
        board.press(Key::Down);
        for size in [(1, 1), (3, 2), (40, 5), (200, 60)] {
            assert_eq!(drawn(&board, size, 3).len(), usize::from(size.1));
        }
        // Three lines for each table: title, header, and one row, which is the marked one.
        let screen = drawn(&board, (120, 11), 3);
        assert!(screen[6].starts_with("quiet"), "{}", screen.join("\n"));
        board.press(Key::Select);
        let screen = drawn(&board, (120, 16), 3);
        assert!(screen.iter().any(|line| line.starts_with(" models of spare (1) ")), "{}", screen.join("\n"));
    }

    #[test]
    fn tables_get_what_they_need_or_share() {
        assert_eq!(heights(30, [4, 10, 9]), [4, 10, 9]);
        assert_eq!(heights(20, [4, 10, 9]), [4, 8, 8]);
        assert_eq!(heights(9, [50, 50, 50]), [3, 3, 3]);
        assert_eq!(heights(0, [4, 10, 9]), [0, 0, 0]);
        assert_eq!(heights(10, [3, 100, 100]).iter().sum::<u16>(), 10);
    }
}
