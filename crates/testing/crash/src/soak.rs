//! A log that is written and purged for long must not grow.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use symphony_consensus::storage::{LogPosition, Opening, Storage};
use symphony_consensus::{Engine, OnDiskError};

use crate::command::Applied;
use crate::report::{Lost, Report};

const ENTRY_BYTES: usize = 256;
const BATCH: u64 = 64;
/// The entries from one snapshot to the next, and the number of entries that stay before one: what a running group
/// does.
const SNAPSHOT_EVERY: u64 = 5_000;
const KEPT: u64 = 5_000;
/// What lives, at most: entries between two purges, with their frames.
const LIVE_BYTES_MAX: u64 = (SNAPSHOT_EVERY + KEPT + BATCH) * (ENTRY_BYTES as u64 + 64);
/// Engines allocate in segments and reclaim late: this many times what lives, and a floor.
const GROWTH_MAX: u64 = 10;
const FLOOR_BYTES: u64 = 32 << 20;

/// What to do.
#[derive(Debug, Clone)]
pub struct Soak {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many entries.
    pub entries: u64,
    /// Where to put files.
    pub work: PathBuf,
}

impl Soak {
    /// Writes `entries` entries, with snapshots and purges behind them.
    ///
    /// # Errors
    /// The storage failed.
    pub fn run(&self) -> Result<Report> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.write())
    }

    async fn write(&self) -> Result<Report> {
        let mut report = Report::new("soak", self.engine.name());
        let opening =
            Opening { engine: self.engine, on_disk_error: OnDiskError::Stop, plant: None, with_ballast: false };
        let dir = self.work.join("disk");
        let mut storage = Storage::open(&dir, opening, Applied::default())?;
        let began = Instant::now();
        let (done, acks) = mpsc::channel();
        let mut next = 0;
        while next < self.entries {
            let count = BATCH.min(self.entries - next);
            let done = done.clone();
            let commands: Vec<Vec<u8>> = (next..next + count).map(entry).collect();
            let tell = move |result: std::io::Result<()>| drop(done.send(result.map(|()| count)));
            storage.append(LogPosition { term: 1, index: next }, commands.clone(), tell).await?;
            let places = (next..).map(|index| LogPosition { term: 1, index });
            storage.apply(places.zip(commands.into_iter().map(Bytes::from)).collect()).await?;
            next += count;
            for ack in acks.try_iter() {
                report.acked += ack?;
            }
            if next / SNAPSHOT_EVERY > (next - count) / SNAPSHOT_EVERY {
                storage.snapshot().await?;
                if let Some(through) = next.checked_sub(KEPT + 1) {
                    storage.purge(LogPosition { term: 1, index: through }).await?;
                }
                report.most("largest log bytes", disk_bytes(&dir.join("log"))?);
            }
        }
        drop(done);
        storage.close().await;
        for ack in acks.iter() {
            report.acked += ack?;
        }
        let largest = report.counts.get("largest log bytes").copied().unwrap_or_default();
        let bound = FLOOR_BYTES.max(LIVE_BYTES_MAX * GROWTH_MAX);
        if largest > bound {
            report.violated(
                &[Lost::new("space", format!("the log took {largest} bytes, at most {bound} are due"))],
                &self.engine.name(),
            );
        }
        if report.acked != self.entries {
            let text = format!("{} of {} entries were acknowledged", report.acked, self.entries);
            report.violated(&[Lost::new("entry", text)], &self.engine.name());
        }
        report.add("live bytes at most", LIVE_BYTES_MAX);
        report.add("log bytes at the end", disk_bytes(&dir.join("log"))?);
        report.add("seconds", began.elapsed().as_secs());
        report.cycles = 1;
        let storage = Storage::open(&dir, opening, Applied::default()).context("opens again")?;
        report.add(
            "live entries",
            storage.known().last.map_or(0, |last| last.index) - storage.known().purged.map_or(0, |purged| purged.index),
        );
        storage.close().await;
        Ok(report)
    }
}

fn entry(index: u64) -> Vec<u8> {
    index.to_le_bytes().repeat(ENTRY_BYTES / 8)
}

/// Bytes that a directory takes, holes left out.
fn disk_bytes(dir: &Path) -> Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        // A file may be removed while we look.
        match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => bytes += disk_bytes(&path)?,
            Ok(meta) => bytes += meta.blocks() * BLOCK_BYTES,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
