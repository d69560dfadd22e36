//! The child that opens disks and says what is on them. A process of its own: an engine may panic, abort or hang on
//! what it finds, and its syncs cost nothing.

use std::io::{BufRead as _, stdin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use symphony_consensus::storage::{Opening, Storage};
use symphony_consensus::{Engine, OnDiskError};

use crate::actor::read_back;
use crate::command::Applied;
use crate::mark::Mark;

/// One disk to look at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) dir: PathBuf,
    pub(crate) engine: String,
    pub(crate) world: u64,
}

/// The engine of that name.
///
/// # Errors
/// There is none that has a disk.
pub fn engine_named(name: &str) -> Result<Engine, String> {
    [Engine::Sled, Engine::Redb]
        .into_iter()
        .find(|engine| engine.name() == name)
        .ok_or_else(|| "expected sled or redb".to_owned())
}

/// Answers one line per line: `Mark::Found` or `Mark::Refused`.
///
/// # Errors
/// A question that is none.
pub fn answer_questions() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for line in stdin().lock().lines() {
        let question: Question = serde_json::from_str(&line?).context("question")?;
        let engine = engine_named(&question.engine).map_err(anyhow::Error::msg)?;
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let applied = Applied::default();
            let began = Instant::now();
            let opening = Opening { engine, on_disk_error: OnDiskError::Stop, plant: None, with_ballast: false };
            let mut storage =
                Storage::open(&question.dir, opening, applied.clone()).map_err(|error| error.to_string())?;
            runtime.block_on(async {
                let found = read_back(&mut storage, &applied, question.world, began).await;
                storage.close().await;
                found
            })
        }));
        match looked {
            Ok(Ok(found)) => Mark::Found(found).say(),
            Ok(Err(reason)) => Mark::Refused(reason).say(),
            Err(_) => Mark::Refused(format!("{PANICKED}: see standard error")).say(),
        }
    }
    Ok(())
}

/// How an answer begins that is no orderly refusal.
pub(crate) const PANICKED: &str = "panicked";
