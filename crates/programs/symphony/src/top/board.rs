//! The state that keys change: active table, order, marked row, and whether a single sub-cluster is shown.

use std::time::Duration;

use super::row::Row;
use super::screen::Screen;

/// How many tables there are.
pub(super) const TABLES: usize = 3;

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    NextTable,
    PreviousTable,
    Up,
    Down,
    /// Sort by the next column.
    Sort,
    /// Reverse the order.
    Reverse,
    /// Show only the models and GPUs of the marked row's sub-cluster.
    Select,
    /// Show all sub-clusters.
    Back,
}

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    End,
}

/// Order of a table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) reversed: bool,
}

/// The contents and how they are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// The newest data, with its time.
    pub(super) screen: Option<(Duration, Screen)>,
    /// Why there is nothing newer.
    pub(super) error: Option<String>,
    /// The active table.
    pub(super) focus: usize,
    pub(super) sorts: [Sort; TABLES],
    /// The single sub-cluster shown, if any.
    pub(super) only: Option<String>,
    /// The marked row of each table, by its key, so that it stays marked when rows are added or reordered.
    marked: [Option<String>; TABLES],
}

impl Board {
    /// Takes new data, or the reason why there is none; then the old data stays.
    pub(super) fn take(&mut self, at: Duration, found: Result<Screen, String>) {
        match found {
            Ok(screen) => {
                self.screen = Some((at, screen));
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }

    pub(super) fn press(&mut self, key: Key) -> Flow {
        match key {
            Key::Quit => return Flow::End,
            Key::NextTable => self.focus = (self.focus + 1) % TABLES,
            Key::PreviousTable => self.focus = (self.focus + TABLES - 1) % TABLES,
            Key::Up => self.mark(|at| at.saturating_sub(1)),
            Key::Down => self.mark(|at| at + 1),
            Key::Sort => {
                let columns = self.screen.as_ref().map_or(1, |(_, screen)| screen.tables[self.focus].header.len());
                let sort = &mut self.sorts[self.focus];
                *sort = Sort { column: (sort.column + 1) % columns, reversed: false };
            }
            Key::Reverse => self.sorts[self.focus].reversed ^= true,
            Key::Select => {
                let marked = self.marked_at(self.focus).map(|at| self.rows(self.focus)[at].subcluster.clone());
                self.only = marked.or(self.only.take());
            }
            Key::Back => self.only = None,
        }
        Flow::On
    }

    /// The visible rows of a table, in order.
    pub(super) fn rows(&self, table: usize) -> Vec<&Row> {
        let Some((_, screen)) = &self.screen else { return Vec::new() };
        let only = self.only.as_ref().filter(|_| table > 0);
        let shown = |row: &&Row| only.is_none_or(|only| row.subcluster == *only);
        let mut rows: Vec<_> = screen.tables[table].rows.iter().filter(shown).collect();
        let Sort { column, reversed } = self.sorts[table];
        rows.sort_by(|one, other| {
            let order = one.cells[column].order(&other.cells[column]);
            if reversed { order.reverse() } else { order }
        });
        rows
    }

    /// The index of the marked row among them.
    pub(super) fn marked_at(&self, table: usize) -> Option<usize> {
        let marked = self.marked[table].as_ref()?;
        self.rows(table).iter().position(|row| row.key == *marked)
    }

    /// Marks another row; the first one if none is marked.
    fn mark(&mut self, to: fn(usize) -> usize) {
        let rows = self.rows(self.focus);
        let at = self.marked_at(self.focus).map_or(0, to).min(rows.len().saturating_sub(1));
        self.marked[self.focus] = rows.get(at).map(|row| row.key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::scene::sample;

    fn board() -> Board {
        let mut board = Board::default();
        board.take(Duration::from_secs(3), Ok(Screen::of(&sample(1), &sample(3))));
        board
    }

    fn keys(board: &Board, table: usize) -> Vec<&str> {
        board.rows(table).iter().map(|row| row.key.as_str()).collect()
    }

    #[test]
    fn a_marked_row_stays_marked_in_another_order() {
        let mut board = board();
        assert_eq!(board.press(Key::NextTable), Flow::On);
        assert_eq!((keys(&board, 1), board.marked_at(1)), (vec!["m", "quiet"], None));
        for (key, marked) in
            [(Key::Down, 0), (Key::Down, 1), (Key::Down, 1), (Key::Up, 0), (Key::Up, 0), (Key::Down, 1)]
        {
            board.press(key);
            assert_eq!(board.marked_at(1), Some(marked), "{key:?}");
        }
        board.press(Key::Reverse);
        assert_eq!((keys(&board, 1), board.marked_at(1)), (vec!["quiet", "m"], Some(0)));
        board.press(Key::Sort);
        assert_eq!(board.sorts[1], Sort { column: 1, reversed: false });
        assert_eq!((keys(&board, 1), board.marked_at(1)), (vec!["m", "quiet"], Some(1)));
        let columns = board.screen.as_ref().unwrap().1.tables[1].header.len();
        for _ in 1..columns {
            board.press(Key::Sort);
        }
        assert_eq!(board.sorts[1].column, 0, "around");
        assert_eq!(board.press(Key::Quit), Flow::End);
    }

    #[test]
    fn a_sub_cluster_is_shown_alone_until_it_is_not() {
        let mut board = board();
        board.press(Key::Select);
        assert_eq!(board.only, None, "nothing is marked");
        board.press(Key::Down);
        board.press(Key::Down);
        board.press(Key::Select);
        assert_eq!(board.only.as_deref(), Some("spare"));
        assert_eq!((keys(&board, 0).len(), keys(&board, 1), keys(&board, 2).len()), (2, vec!["quiet"], 1));
        board.press(Key::Back);
        assert_eq!(keys(&board, 1).len(), 2);
    }

    #[test]
    fn what_was_known_stays_when_the_cluster_is_lost() {
        let mut board = Board::default();
        board.take(Duration::ZERO, Err("nobody answers".into()));
        for key in [Key::Down, Key::Up, Key::Sort, Key::Reverse, Key::Select, Key::Back, Key::PreviousTable] {
            assert_eq!(board.press(key), Flow::On, "nothing to do anything with: {key:?}");
        }
        let mut board = self::board();
        board.take(Duration::from_secs(9), Err("nobody answers".into()));
        assert_eq!((keys(&board, 1).len(), board.screen.as_ref().unwrap().0.as_secs()), (2, 3));
        board.take(Duration::from_secs(12), Ok(Screen::of(&sample(1), &sample(3))));
        assert_eq!((board.error, board.screen.unwrap().0.as_secs()), (None, 12));
    }
}
