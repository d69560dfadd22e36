//! The library at work in real processes: the tools of every Linux, and this test itself as a child.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use symphony_interposer::{Change, Clock, Control, EIO, ENOSPC, Fault, Operations, Recording, Rule, attach, changes};
use tempfile::TempDir;

/// Runs the test named `part` of this program as a child, which does its part only then.
fn child(part: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", part, "--nocapture"]).env("INTERPOSER_TEST_DIR", dir);
    command
}

fn dir_of_child() -> Option<std::path::PathBuf> {
    std::env::var_os("INTERPOSER_TEST_DIR").map(Into::into)
}

fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("child runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

struct Scene {
    dir: TempDir,
    control: Control,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::new().expect("temporary directory");
        let control = Control::create(dir.path().join("control")).expect("control");
        Self { dir, control }
    }

    fn child(&self, part: &str) -> Command {
        let mut command = child(part, self.dir.path());
        attach(&mut command, &self.control);
        command
    }

    fn data(&self) -> String {
        format!("{}/data*", self.dir.path().display())
    }
}

/// The child's part: writes, syncs, and says how each step ended.
#[test]
fn part_write_and_sync() {
    let Some(dir) = dir_of_child() else { return };
    let step = |name: &str, outcome: io::Result<()>| {
        println!(
            "{name} {}",
            outcome.map_or_else(|error| error.raw_os_error().unwrap_or(-1).to_string(), |()| "ok".into())
        );
    };
    let file = File::create(dir.join("data"));
    step(
        "create",
        file.as_ref().map(|_| ()).map_err(|error| io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(-1))),
    );
    let Ok(mut file) = file else { return };
    step("write", file.write_all(&[7; 1000]));
    step("sync", file.sync_all());
    step("write", file.write_all(&[8; 1000]));
    step("sync", file.sync_data());
}

#[test]
fn faults_hit_what_they_name_and_nothing_else() {
    let mut scene = Scene::new();
    let outcomes = |scene: &Scene| {
        let text = text(&run(scene.child("part_write_and_sync")));
        let steps = text.lines().filter_map(|line| {
            let (name, outcome) = line.rsplit_once(' ')?;
            ["create", "write", "sync"].iter().any(|step| name.ends_with(step)).then(|| outcome.to_owned())
        });
        steps.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(outcomes(&scene), "ok ok ok ok ok");

    let other = Rule::new(Operations::CHANGES, "/nowhere/*", Fault::Fail(EIO));
    scene.control.set(0, &other).expect("set");
    assert_eq!(outcomes(&scene), "ok ok ok ok ok");
    assert_eq!(scene.control.seen(0).expect("count"), 0);

    let second_sync = Rule::new(Operations::SYNC, scene.data(), Fault::Fail(EIO)).only(1, 1);
    scene.control.set(0, &second_sync).expect("set");
    assert_eq!(outcomes(&scene), "ok ok ok ok 5");
    assert_eq!((scene.control.seen(0).expect("count"), scene.control.struck(0).expect("count")), (2, 1));

    scene.control.set(0, &Rule::new(Operations::WRITE, scene.data(), Fault::Shorten).only(0, 1)).expect("set");
    assert_eq!(outcomes(&scene), "ok ok ok ok ok", "a short write is finished by the caller");
    assert_eq!(fs::metadata(scene.dir.path().join("data")).expect("file").len(), 2000);

    scene.control.set(0, &Rule::new(Operations::WRITE, scene.data(), Fault::Fill { space_bytes: 1500 })).expect("set");
    assert_eq!(outcomes(&scene), format!("ok ok ok {ENOSPC} ok"));
    assert_eq!(fs::metadata(scene.dir.path().join("data")).expect("file").len(), 1500);

    scene.control.set(0, &Rule::new(Operations::OPEN, scene.data(), Fault::Fail(EIO))).expect("set");
    assert_eq!(outcomes(&scene), "5");
    scene.control.lift(0).expect("lift");
    assert_eq!(outcomes(&scene), "ok ok ok ok ok");
}

#[test]
fn a_stall_lasts_until_it_is_lifted() {
    let mut scene = Scene::new();
    scene.control.set(3, &Rule::new(Operations::SYNC, scene.data(), Fault::Delay(None))).expect("set");
    let mut child = scene.child("part_write_and_sync").stdout(Stdio::null()).spawn().expect("child");
    let deadline = Instant::now() + Duration::from_secs(30);
    while scene.control.struck(3).expect("count") == 0 {
        assert!(Instant::now() < deadline, "the child never synced");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(child.try_wait().expect("child"), None, "it waits");
    scene.control.lift(3).expect("lift");
    assert!(child.wait().expect("child").success());
}

/// The child's part: changes of every kind.
#[test]
fn part_change_everything() {
    let Some(dir) = dir_of_child() else { return };
    let dir = dir.join("watched");
    fs::create_dir(dir.join("inner")).expect("mkdir");
    let mut file = OpenOptions::new().append(true).create(true).open(dir.join("inner/a")).expect("create");
    file.write_all(b"one").expect("write");
    println!("said something");
    file.write_all(b"two").expect("write");
    file.sync_data().expect("sync");
    file.set_len(4).expect("truncate");
    fs::rename(dir.join("inner/a"), dir.join("b")).expect("rename");
    File::open(&dir).expect("open").sync_all().expect("sync");
    fs::remove_file(dir.join("b")).expect("unlink");
    fs::write(dir.parent().expect("parent").join("outside"), "unseen").expect("write");
}

#[test]
fn a_record_has_every_change_in_order_and_may_end_in_a_kill() {
    let dir = TempDir::new().expect("temporary directory");
    let root = dir.path().canonicalize().expect("path");
    let watch = root.join("watched");
    let record = root.join("record");
    let recorded = |kill_after| {
        let _ = fs::remove_dir_all(&watch);
        let _ = fs::remove_file(&record);
        fs::create_dir(&watch).expect("mkdir");
        let mut command = child("part_change_everything", &root);
        Recording { to: record.clone(), watch: watch.clone(), mark_fd: Some(1), kill_after }.attach(&mut command);
        let output = run(command);
        let bytes = fs::read(&record).expect("record");
        let mut names = Vec::new();
        for change in changes(&bytes).expect("reads") {
            names.push(match change {
                Change::MadeDir { path, .. } => {
                    format!("mkdir {}", path.strip_prefix(&watch).expect("below").display())
                }
                Change::Created { path, .. } => {
                    format!("create {}", path.strip_prefix(&watch).expect("below").display())
                }
                Change::Written { offset, data, .. } => format!("write {offset} {}", String::from_utf8_lossy(data)),
                Change::Truncated { length, .. } => format!("truncate {length}"),
                Change::Renamed { to, .. } => format!("rename {}", to.strip_prefix(&watch).expect("below").display()),
                Change::Unlinked { .. } => "unlink".into(),
                Change::Synced { .. } => "sync".into(),
                Change::Mark(text) if text.starts_with(b"said") => "mark".into(),
                Change::Mark(_) => continue, // the test program's own words
                Change::Unknown(what) => what,
            });
        }
        (output.status.success(), names)
    };
    let all = [
        "mkdir inner",
        "create inner/a",
        "write 0 one",
        "mark",
        "write 3 two",
        "sync",
        "truncate 4",
        "rename b",
        "sync",
        "unlink",
    ];
    let (success, names) = recorded(None);
    assert!(success);
    assert_eq!(names, all);
    let (success, names) = recorded(Some(6));
    assert!(!success, "it was killed");
    assert_eq!(names, all[..names.len()]);
    assert!(names.len() < all.len());
}

/// The child's part: what its clocks say, and how long a second's wait takes by them.
#[test]
fn part_look_at_clocks() {
    if dir_of_child().is_none() {
        return;
    }
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let before = Instant::now();
    let pair = (std::sync::Mutex::new(()), std::sync::Condvar::new());
    let guard = pair.0.lock().expect("lock");
    let _ = pair.1.wait_timeout(guard, Duration::from_millis(500)).expect("wait");
    println!("wall {}", wall.as_millis());
    println!("waited {}", before.elapsed().as_millis());
}

#[test]
fn clocks_jump_and_run_fast_and_waits_by_them_still_end() {
    let mut scene = Scene::new();
    let look = |scene: &Scene| {
        let before = Instant::now();
        let text = text(&run(scene.child("part_look_at_clocks")));
        let number = |name: &str| -> i128 {
            let line = text.lines().find_map(|line| line.split_once(name)).unwrap_or_else(|| panic!("{text}"));
            line.1.trim().parse().expect("a number")
        };
        (number("wall "), number("waited "), before.elapsed().as_millis() as i128)
    };
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as i128;
    let hour = 3_600_000;
    scene.control.jump(Duration::from_secs(3600), false).expect("jump");
    let (wall, waited, _) = look(&scene);
    assert!((wall - now() - hour).abs() < hour / 2, "the wall clock has jumped");
    assert!(waited >= 500);

    // Ten times as fast, so that no noise can be mistaken for it: 500 ms by its clock are 50 ms of ours.
    scene.control.set_rate(Clock::Monotonic, 9_000_000).expect("rate");
    let (_, waited, took) = look(&scene);
    assert!(waited >= 500, "by its own clock it waited {waited} ms");
    assert!(took < 30_000, "a deadline by the bent clock was taken for one of the kernel's");
}
