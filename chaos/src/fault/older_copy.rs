//! A replica comes back over an older copy of its disk, as after a volume was restored, or over an empty one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use symphony_types::BootId;

use super::boot;
use crate::cluster::{Cluster, Process};
use crate::run_failure::{FailureCause, chaos_failed};

/// How long it may take to find out and end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

const POLL_EVERY: Duration = Duration::from_millis(10);

/// Copies the disk of a replica between two of its boots, has it run for `newer`, ends it, and starts it over the copy.
/// Returns how long it took to end by itself, and the boot that was forgotten; then a new replica takes its place.
pub(super) async fn put_back(
    cluster: &mut Cluster,
    replica: Process,
    newer: Duration,
) -> Result<(Duration, Option<BootId>)> {
    let disk = cluster.data_dir(replica);
    let kept = disk.with_extension("copy");
    let before = boot(&cluster.until_whole("the cluster before a copy").await?, replica);
    cluster.stop(replica).await?;
    copy(&disk, &kept).with_context(|| format!("cannot copy {}", disk.display())).map_err(chaos_failed)?;
    cluster.start_again(replica)?;
    let back = |view: &_| match boot(view, replica) {
        now if now != before => Ok(()),
        _ => Err(format!("{replica} has not registered again")),
    };
    let forgotten = boot(&cluster.until(&format!("the return of {replica}"), back).await?, replica);
    tokio::time::sleep(newer).await;
    cluster.kill(replica)?;
    fs::remove_dir_all(&disk).and_then(|()| fs::rename(&kept, &disk)).map_err(chaos_failed)?;
    Ok((ends_and_is_replaced(cluster, replica, "an older copy of its disk").await?, forgotten))
}

/// Kills a replica, empties its disk, and starts it again `down` later. Returns how long it took to end by itself, and
/// the boot that was forgotten; then a new replica takes its place.
pub(super) async fn wipe(
    cluster: &mut Cluster,
    replica: Process,
    down: Duration,
) -> Result<(Duration, Option<BootId>)> {
    let forgotten = boot(&cluster.until_whole("the cluster before a disk is emptied").await?, replica);
    // The replicas that its file names are all that are left for it to ask.
    cluster.renew_list(replica)?;
    cluster.kill(replica)?;
    fs::remove_dir_all(cluster.data_dir(replica)).map_err(chaos_failed)?;
    tokio::time::sleep(down).await;
    Ok((ends_and_is_replaced(cluster, replica, "an empty disk").await?, forgotten))
}

/// Starts a replica over a disk that lacks what it acknowledged. Returns how long it took to end by itself; then a new
/// one takes its place.
async fn ends_and_is_replaced(cluster: &mut Cluster, replica: Process, disk: &str) -> Result<Duration> {
    cluster.start_again(replica)?;
    let started = tokio::time::Instant::now();
    while !cluster.has_ended(replica)? {
        if started.elapsed() >= ENDS_WITHIN {
            return Err(anyhow!("{replica} runs on over {disk}").context(FailureCause::Forgot));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    let after = started.elapsed();
    cluster.change_members(true, Some(replica)).await?;
    Ok(after)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
