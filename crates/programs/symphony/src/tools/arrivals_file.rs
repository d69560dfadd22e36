//! Files of recorded arrivals: read, cut, written.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use symphony_types::Nanos;
use symphony_workload::{RecordedArrivals, TRACE_S_MAX, Window};

use crate::cli::TracePartArgs;
use crate::exit::bad_input;

/// The longest file of a trace: 1 GiB. A day of Azure Functions 2019 has 150 MB, the two weeks of 2021 have 300 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The text of a trace.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let file = path.display();
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|open| open.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    opened.map_err(|error| bad_input(format!("{file}: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad_input(format!(
            "{file}: expected at most {FILE_BYTES_MAX} bytes, got more; cut it by days or lines"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        bad_input(format!(
            "{file}: expected text, got a byte that is not UTF-8 at {}",
            error.utf8_error().valid_up_to()
        ))
    })
}

/// A CSV of arrivals.
pub(super) fn read(path: &Path) -> anyhow::Result<RecordedArrivals> {
    let text = read_text(path)?;
    RecordedArrivals::from_csv(&text).map_err(|error| bad_input(format!("{}: {error}", path.display())))
}

pub(super) fn write(path: &Path, arrivals: &RecordedArrivals) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        arrivals.csv_lines().try_for_each(|line| file.write_all(line.as_bytes()))?;
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    let models = arrivals.sources.iter().filter(|name| !name.is_empty()).count();
    let lasts_s = arrivals.rows.last().map_or(0.0, |row| row.at.as_secs_f64());
    println!("{}: {} arrivals of {models} models in {lasts_s:.3} s", path.display(), arrivals.rows.len());
    Ok(())
}

impl TracePartArgs {
    /// The part of the trace.
    pub(super) fn window(self) -> anyhow::Result<Window> {
        let from = seconds("--from-s", self.from_s)?;
        let span = self.for_s.map(|for_s| seconds("--for-s", for_s)).transpose()?;
        Ok(Window { from, span })
    }

    /// Cuts arrivals and plays them faster.
    pub(super) fn apply(self, arrivals: &mut RecordedArrivals) -> anyhow::Result<()> {
        arrivals.cut(self.window()?, checked_speed(self.speed)?).map_err(bad_input)
    }
}

/// A number of seconds of a trace.
pub(super) fn seconds(option: &str, value: f64) -> anyhow::Result<Nanos> {
    if (0.0..=TRACE_S_MAX).contains(&value) {
        return Ok(Nanos::from_secs_f64(value));
    }
    Err(bad_input(format!("{option} {value}: expected seconds from 0 to {TRACE_S_MAX}")))
}

/// A factor by which a trace is played faster.
pub(super) fn checked_speed(speed: f64) -> anyhow::Result<f64> {
    /// Beyond it a day is over in a microsecond.
    const SPEED_MAX: f64 = 1e6;
    if (1.0 / SPEED_MAX..=SPEED_MAX).contains(&speed) {
        return Ok(speed);
    }
    Err(bad_input(format!("--speed {speed}: expected a factor from {} to {SPEED_MAX}", 1.0 / SPEED_MAX)))
}
