//! Terminal input and output: takes samples and keys, draws the board.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::board::{Board, Flow, Key};
use super::draw::draw;
use super::window::{ASK_EVERY, Window};
use crate::inspect::sample::{Sample, Sampler};

/// How often the key reader checks whether it should stop.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The most keys waiting to be read.
const KEYS_MAX: usize = 64;

/// An event to show.
enum News {
    /// A key; `None` if the terminal changed.
    Key(Option<Key>),
    /// The cluster's answer, and its time.
    Sample(Duration, Box<Result<Sample, String>>),
}

/// Restores the terminal on every exit.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

pub(super) async fn run(sampler: Sampler, over: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    let (news, mut come) = mpsc::channel(KEYS_MAX);
    let keys = news.clone();
    // On its own thread, since reading a terminal blocks. It ends when the receiver is gone.
    tokio::task::spawn_blocking(move || read_keys(&keys));
    let sampling = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sample = sampler.take(began).await.map_err(|error| format!("{error:#}"));
            if news.send(News::Sample(began.elapsed(), Box::new(sample))).await.is_err() {
                return;
            }
        }
    });
    let (mut board, mut window) = (Board::default(), Window::new(over));
    loop {
        terminal.draw(|frame| draw(frame, &board, began.elapsed()))?;
        match come.recv().await {
            Some(News::Key(Some(key))) if board.press(key) == Flow::End => break,
            Some(News::Key(_)) => {}
            Some(News::Sample(at, sample)) => board.take(at, sample.map(|sample| window.take(sample))),
            None => break,
        }
    }
    sampling.abort();
    Ok(())
}

/// Forwards keys until the receiver or the terminal is gone.
fn read_keys(to: &mpsc::Sender<News>) {
    while !to.is_closed() {
        let news = match event::poll(POLL_EVERY) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let news = match news {
            Ok(Event::Key(pressed)) => key(pressed).map(Some),
            Ok(Event::Resize(..)) => Some(None),
            Ok(_) => None,
            Err(_) => Some(Some(Key::Quit)),
        };
        if news.is_some_and(|news| to.blocking_send(News::Key(news)).is_err()) {
            return;
        }
    }
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    Some(match pressed.code {
        KeyCode::Char('c') if pressed.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Tab => Key::NextTable,
        KeyCode::BackTab => Key::PreviousTable,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('r') => Key::Reverse,
        KeyCode::Enter => Key::Select,
        KeyCode::Esc => Key::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let plain = |code| key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!(key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Key::Quit));
        let all = [
            KeyCode::Tab,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Char('s'),
            KeyCode::Char('r'),
            KeyCode::Enter,
            KeyCode::Esc,
        ];
        let meant = [Key::NextTable, Key::Up, Key::Down, Key::Sort, Key::Reverse, Key::Select, Key::Back];
        assert_eq!(all.map(plain), meant.map(Some));
    }
}
