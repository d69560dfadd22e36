//! `symphony backup`: the replicated state as a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use symphony_control_plane::{BACKUP_BYTES_MAX, Backup};
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_protocol::control::federation_client::FederationClient;

use super::operation::query_error;
use crate::backup_file::{Content, STANDARD, in_words, read};
use crate::cli::{BackupArgs, Output};
use crate::exit::bad_input;

/// How long the replicas may take to answer, all of them.
const WITHIN: Duration = Duration::from_secs(30);

/// And each of them, which leaves time for another one if the first hangs. A state at all its limits has 64 MiB, over
/// whatever the operator's line is.
const EACH_WITHIN: Duration = Duration::from_secs(20);

/// An answer: a backup, and the few bytes around it.
const ANSWER_BYTES_MAX: usize = BACKUP_BYTES_MAX + 64;

pub(crate) async fn run(args: &BackupArgs) -> anyhow::Result<()> {
    match (&args.show, &args.to) {
        (Some(file), _) => {
            let (backup, content) = read(file)?;
            println!("{}", shown(args.output, file, &backup, &content)?);
            Ok(())
        }
        (None, Some(file)) => take(args, file).await,
        (None, None) => Err(bad_input("--to FILE or --show FILE must be given")),
    }
}

/// Asks the cluster, or the federation, for a backup, checks it, and writes it.
async fn take(args: &BackupArgs, file: &Path) -> anyhow::Result<()> {
    let bytes = ask(args).await?;
    let backup = Backup::decode(&bytes).context("the answer is no sound backup")?;
    let content = Content::open(&backup).context("the answer is a backup that this release cannot restore")?;
    let shown = shown(args.output, file, &backup, &content)?;
    if file.as_os_str() == STANDARD {
        eprintln!("{shown}");
        let mut out = io::stdout().lock();
        return out.write_all(&bytes).and_then(|()| out.flush()).context("cannot write to standard output");
    }
    write(file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{shown}");
    Ok(())
}

async fn ask(args: &BackupArgs) -> anyhow::Result<Vec<u8>> {
    let stale = args.stale;
    let reply = match args.federation.client(&args.cluster)? {
        Some(federation) => {
            let call = |client: FederationClient<_>| async move {
                client.max_decoding_message_size(ANSWER_BYTES_MAX).backup(pb::BackupRequest { stale }).await
            };
            federation.call_for(WITHIN, EACH_WITHIN, call).await
        }
        None => {
            let call = |client: ControlClient<_>| async move {
                client.max_decoding_message_size(ANSWER_BYTES_MAX).backup(pb::BackupRequest { stale }).await
            };
            args.cluster.control()?.call_for(WITHIN, EACH_WITHIN, call).await
        }
    };
    Ok(reply.map_err(query_error)?.backup)
}

/// Writes a file that only this user may read; it is whole and durable when this returns, or as it was before.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // A file would take the place of the device, the pipe or the link.
    if fs::symlink_metadata(file).is_ok_and(|there| !there.is_file()) {
        let why = "it exists and is no regular file; `--to -` writes to standard output";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // Another run may write the same file now.
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}-{:08x}.unfinished", std::process::id(), rand::random::<u32>()));
    let draft = PathBuf::from(draft);
    let written = write_to(&draft, bytes).and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        // Half a backup would only take space that is short.
        let _ = fs::remove_file(&draft);
    }
    written?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(dir)?.sync_all()
}

fn write_to(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What is in it, for people or for programs.
fn shown(output: Output, file: &Path, backup: &Backup, content: &Content) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => serde_json::to_string_pretty(&to_json(backup, content))?,
        Output::Table => format!("{}: {}", file.display(), in_words(backup, content)),
    })
}

fn to_json(backup: &Backup, content: &Content) -> serde_json::Value {
    let whose = match content {
        Content::Cluster(_) => "cluster",
        Content::Federation(_) => "federation",
    };
    let mut all = json!({ whose: backup.cluster, "taken_at_unix_ms": backup.taken_at_unix_ms, "release": backup.release,
                          "node": backup.node.to_string(), "index": backup.index, "term": backup.term,
                          "confirmed": backup.confirmed, "state_bytes": backup.state.len() });
    let parts = match content {
        Content::Cluster(state) => json!({
            "models": state.models().values().map(|model| &model.spec.name).collect::<Vec<_>>(),
            "subclusters": state.subclusters().len(), "backends": state.backends().len(),
            "frontends": state.frontends().len(), "operations": state.operations().len(),
            "schedulers": state.nodes().iter().map(|(id, node)| json!({ "id": id.to_string(), "control": node.control_addr }))
                .collect::<Vec<_>>() }),
        Content::Federation(state) => json!({
            "models": state.models().keys().collect::<Vec<_>>(), "clusters": state.clusters().keys().collect::<Vec<_>>(),
            "operations": state.operations().len(), "replicas": state.replicas() }),
    };
    if let (Some(all), serde_json::Value::Object(parts)) = (all.as_object_mut(), parts) {
        all.extend(parts);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use symphony_control_plane::ClusterState;
    use symphony_federation::FederationState;
    use symphony_types::NodeId;

    use super::*;

    fn backup() -> Backup {
        let state = ClusterState::default();
        Backup {
            cluster: "blue".into(),
            release: "0.1.0".into(),
            taken_at_unix_ms: 1_700_000_000_000,
            node: NodeId::new(2),
            index: 0,
            term: 3,
            state: state.snapshot(),
            confirmed: false,
        }
    }

    #[test]
    fn a_file_is_written_whole_for_its_owner_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("b.backup");
        for _ in 0..2 {
            write(&file, &backup().encode().unwrap()).unwrap();
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        let (read, content) = read(&file).unwrap();
        assert_eq!(read, backup());
        let words = in_words(&read, &content);
        assert!(words.contains("cluster blue") && words.contains("n2 at 2023-11-14T22:13:20Z"), "{words}");
        assert!(words.contains("NOT confirmed") && words.contains("0 models"), "{words}");
    }

    #[test]
    fn a_federations_backup_is_told_from_a_clusters() {
        let state = FederationState::default().snapshot();
        let of_federation = Backup { cluster: "world".into(), state, ..backup() };
        let content = Content::open(&of_federation).unwrap();
        let words = in_words(&of_federation, &content);
        assert!(words.contains("federation world") && words.contains("0 clusters"), "{words}");
        let json = to_json(&of_federation, &content);
        assert_eq!((&json["federation"], &json["index"]), (&json!("world"), &json!(0)), "{json}");
        let json = to_json(&backup(), &Content::open(&backup()).unwrap());
        assert!(json["cluster"] == "blue" && json["subclusters"] == 0, "{json}");
    }

    #[test]
    fn what_is_no_backup_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("b.backup");
        let refusal = || read(&file).unwrap_err().to_string();
        assert!(refusal().contains("b.backup"), "it is missing");
        let mut bytes = backup().encode().unwrap();
        bytes.pop();
        fs::write(&file, &bytes).unwrap();
        assert!(refusal().contains("both must agree"));
        fs::write(&file, "rubbish").unwrap();
        assert!(refusal().contains("starts with `SYBK`"));
    }

    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, link) = (dir.path().join("kept"), dir.path().join("link"));
        fs::write(&kept, "as it was").unwrap();
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        for there in [link.as_path(), dir.path()] {
            let refused = write(there, b"x").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}: {refused}", there.display());
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&kept).unwrap(), "as it was");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn runs_at_the_same_time_leave_one_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = &dir.path().join("b.backup");
        let contents = [vec![1_u8; 1 << 20], vec![2_u8; 1 << 20]];
        std::thread::scope(|threads| {
            for content in &contents {
                threads.spawn(move || (0..10).for_each(|_| write(file, content).unwrap()));
            }
        });
        assert!(contents.contains(&fs::read(file).unwrap()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_folder_that_is_not_there_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write(&dir.path().join("no/b"), b"x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
