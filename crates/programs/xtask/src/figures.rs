//! The tables of performance.md: each is a file in docs/internals/figures, whose rows benchmarks bring up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

const PAGE: &str = "docs/internals/performance.md";
const TABLES: &str = "docs/internals/figures";
/// Where Criterion stores its results.
const CRITERION: &str = "target/criterion";
/// Stands for the commit of a figure from before it was recorded; no figure after that day has it.
const NO_COMMIT: &str = "before commits were recorded";
const NO_COMMIT_UNTIL: &str = "2026-11-27";
/// Begins the value of a figure that is still to be measured, which has no commit.
const NOT_MEASURED: &str = "not measured";

/// One figure. Numbers are strings, as the page shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    what: String,
    value: String,
    unit: String,
    bound: String,
    machine: String,
    commit: String,
    date: String,
    command: String,
    /// Criterion's name of the benchmark. The figure is its time per element, in the unit's first word.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    criterion: Option<String>,
}

/// The result of a benchmark: it goes into the row with the same `what`, in any table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    what: String,
    value: String,
    machine: String,
    commit: String,
    date: String,
}

type Tables = BTreeMap<String, Vec<Row>>;

/// Checks that the page shows the tables.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let page = read(&root.join(PAGE))?;
    let tables = tables(root)?;
    let mut problems = without_commit(&tables);
    problems.extend(named_twice(&tables));
    if page != rendered(&page, &tables)? {
        problems.push(format!("{PAGE}: stale; run `cargo xtask figures`"));
    }
    Ok(problems)
}

/// New figures without the commit that was measured.
fn without_commit(tables: &Tables) -> Vec<String> {
    let of_old = |row: &Row| row.commit == NO_COMMIT && row.date.as_str() <= NO_COMMIT_UNTIL;
    let to_come = |row: &Row| row.commit.is_empty() && row.value.starts_with(NOT_MEASURED);
    let rows = tables.iter().flat_map(|(name, rows)| rows.iter().map(move |row| (name, row)));
    let missing = rows.filter(|(_, row)| !is_commit(&row.commit) && !of_old(row) && !to_come(row));
    let messages = missing.map(|(name, Row { what, commit, .. })| {
        format!("{TABLES}/{name}.json: `{what}` is of commit `{commit}`; expected the 7 to 40 hex digits of one")
    });
    messages.collect()
}

/// Figures that share a name, so that no result finds its row.
fn named_twice(tables: &Tables) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let again = tables.values().flatten().filter(|row| !seen.insert(row.what.as_str()));
    again.map(|row| format!("{TABLES}: `{}` names two figures; expected one", row.what)).collect()
}

fn is_commit(text: &str) -> bool {
    (7..=40).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Takes in new results, if there are any, and rewrites the page.
pub(crate) fn write(root: &Path, measured: Option<&Path>, criterion_of: Option<&str>) -> Result<()> {
    let mut tables = tables(root)?;
    if let Some(path) = measured {
        let text = read(path)?;
        let figures: Vec<Measured> = serde_json::from_str(&text).with_context(|| {
            format!("{}: expected [{{\"what\", \"value\", \"machine\", \"commit\", \"date\"}}, …]", path.display())
        })?;
        figures.iter().try_for_each(|figure| take(&mut tables, figure))?;
    }
    if let Some(machine) = criterion_of {
        let head = Head::of(root)?;
        take_criterion(&mut tables, &criterion_ns(&root.join(CRITERION), head.at)?, machine, &head)?;
    }
    for (name, rows) in &tables {
        let json = serde_json::to_string_pretty(rows)? + "\n";
        let path = root.join(TABLES).join(format!("{name}.json"));
        fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let page = rendered(&read(&root.join(PAGE))?, &tables)?;
    fs::write(root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn tables(root: &Path) -> Result<Tables> {
    let folder = root.join(TABLES);
    let mut tables = Tables::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path: PathBuf = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).context("a table without a name")?.to_owned();
        let rows = serde_json::from_str(&read(&path)?).with_context(|| format!("{}", path.display()))?;
        tables.insert(name, rows);
    }
    Ok(tables)
}

fn take(tables: &mut Tables, measured: &Measured) -> Result<()> {
    let rows: Vec<_> = tables.values_mut().flatten().filter(|row| row.what == measured.what).collect();
    ensure!(rows.len() == 1, "`{}` names {} figures; expected one", measured.what, rows.len());
    let Measured { value, machine, commit, date, .. } = measured;
    ensure!(
        is_commit(commit),
        "`{}` was measured at `{commit}`; expected a commit: measure where nothing is changed since the last one",
        measured.what
    );
    for row in rows {
        (row.value, row.machine) = (value.clone(), machine.clone());
        (row.commit, row.date) = (commit.clone(), date.clone());
    }
    Ok(())
}

/// Takes the time of each benchmark that a row names.
fn take_criterion(tables: &mut Tables, ns: &BTreeMap<String, f64>, machine: &str, head: &Head) -> Result<()> {
    let mut taken = 0;
    for row in tables.values_mut().flatten() {
        let Some(ns) = row.criterion.as_ref().and_then(|name| ns.get(name)) else { continue };
        row.value = in_unit(*ns, &row.unit, &row.bound)?;
        row.machine = machine.to_owned();
        (row.commit, row.date) = (head.commit.clone(), head.date.clone());
        taken += 1;
    }
    ensure!(
        taken > 0,
        "{CRITERION} has nothing of the last commit that the tables name; run `make bench`, or one of its benchmarks"
    );
    Ok(())
}

/// The median of each benchmark that ran since then, in nanoseconds for each element, by Criterion's name of it.
fn criterion_ns(results: &Path, since: SystemTime) -> Result<BTreeMap<String, f64>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![results.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if !path.is_dir() {
                continue;
            }
            if path.file_name().is_none_or(|name| name != "new") {
                folders.push(path);
                continue;
            }
            let estimates = path.join("estimates.json");
            if fs::metadata(&estimates).and_then(|file| file.modified()).is_ok_and(|ran| ran >= since) {
                let (name, ns) = per_element_ns(&read(&estimates)?, &read(&path.join("benchmark.json"))?)?;
                found.insert(name, ns);
            }
        }
    }
    Ok(found)
}

/// The name of a benchmark, and nanoseconds for each element of an iteration.
fn per_element_ns(estimates: &str, benchmark: &str) -> Result<(String, f64)> {
    let estimates: serde_json::Value = serde_json::from_str(estimates)?;
    let benchmark: serde_json::Value = serde_json::from_str(benchmark)?;
    let name = benchmark["full_id"].as_str().context("Criterion gave no name")?.to_owned();
    let median = estimates["median"]["point_estimate"].as_f64().context("Criterion gave no median")?;
    Ok((name, median / benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0)))
}

/// A time in the unit of a row, in bold if it is beyond the bound.
fn in_unit(ns: f64, unit: &str, bound: &str) -> Result<String> {
    let scale = match unit.split(' ').next() {
        Some("ns") => 1.0,
        Some("µs") => 1e3,
        Some("ms") => 1e6,
        Some("s") => 1e9,
        _ => bail!("a figure of Criterion is in `{unit}`; expected a unit that begins with ns, µs, ms or s"),
    };
    let value = ns / scale;
    let digits = match value {
        10.0.. => 0,
        1.0.. => 1,
        _ => 2,
    };
    let misses = bound.parse::<f64>().is_ok_and(|bound| value > bound);
    Ok(if misses { format!("**{value:.digits$}**") } else { format!("{value:.digits$}") })
}

/// The last commit.
struct Head {
    commit: String,
    date: String,
    at: SystemTime,
}

impl Head {
    /// Refuses a changed tree: its figures would belong to no commit. Pages and figures may have changed.
    fn of(root: &Path) -> Result<Self> {
        let changed = git(root, &["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs"])?;
        ensure!(changed.trim().is_empty(), "changed since the last commit:\n{changed}measure where nothing is");
        let output = git(root, &["log", "-1", "--abbrev=10", "--format=%h %cs %ct"])?;
        let mut words = output.split_whitespace();
        let mut next = || words.next().map(str::to_owned).context("git named no commit, date and time");
        let (commit, date, seconds) = (next()?, next()?, next()?);
        Ok(Self { commit, date, at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.parse()?) })
    }
}

fn git(root: &Path, words: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git").args(words).current_dir(root).output();
    let output = output.context("cannot start git")?;
    ensure!(output.status.success(), "git {}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The page with each table between its markers.
fn rendered(page: &str, tables: &Tables) -> Result<String> {
    const END: &str = "<!-- end of figures -->";
    let (mut out, mut rest, mut shown) = (String::new(), page, Vec::new());
    while let Some(at) = rest.find("<!-- figures ") {
        let (name, _) = rest[at + "<!-- figures ".len()..].split_once(':').context("a mark without a name")?;
        let begin = at + rest[at..].find("-->\n").context("a mark without an end")? + "-->\n".len();
        let end = begin + rest[begin..].find(END).with_context(|| format!("{PAGE}: no `{END}` after {name}"))?;
        let Some(rows) = tables.get(name) else { bail!("{PAGE} shows `{name}`; there is no {TABLES}/{name}.json") };
        out.push_str(&rest[..begin]);
        out.push_str(&table(rows));
        shown.push(name);
        rest = &rest[end..];
    }
    let hidden = tables.keys().find(|name| !shown.contains(&name.as_str()));
    ensure!(hidden.is_none(), "{TABLES}/{}.json is not shown in {PAGE}", hidden.map_or("", String::as_str));
    out.push_str(rest);
    Ok(out)
}

fn table(rows: &[Row]) -> String {
    let head = "\n| what | value | unit | bound | machine | commit | date | command |\n| --- | ---: | --- | --- | --- | --- | --- | --- |\n";
    let line = |row: &Row| {
        let Row { what, value, unit, bound, machine, commit, date, command, .. } = row;
        let commit = if commit == NO_COMMIT || commit.is_empty() { "–" } else { commit.as_str() };
        format!("| {what} | {value} | {unit} | {bound} | {machine} | {commit} | {date} | {command} |\n")
    };
    rows.iter().fold(head.to_owned(), |table, row| table + &line(row)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, criterion: Option<&str>) -> Row {
        let [unit, bound, command] = ["ns", "5", "make"].map(str::to_owned);
        let (value, machine, date) = ("1".into(), "S2".into(), "2026-11-20".into());
        let (commit, criterion) = (NO_COMMIT.into(), criterion.map(str::to_owned));
        Row { what: what.into(), value, unit, bound, machine, commit, date, command, criterion }
    }

    fn one_table() -> Tables {
        Tables::from([("speed".to_owned(), vec![row("a queue", None), row("a ranker", Some("ranker/one"))])])
    }

    #[test]
    fn a_table_stands_between_its_marks_and_one_that_is_missing_or_hidden_is_named() {
        let page = "# P\n<!-- figures speed: by program -->\nstale\n<!-- end of figures -->\nwhy\n";
        let shown = rendered(page, &one_table()).unwrap();
        assert!(shown.contains("| a queue | 1 | ns | 5 | S2 | – | 2026-11-20 | make |\n") && !shown.contains("stale"));
        assert!(shown.ends_with("<!-- end of figures -->\nwhy\n"));
        assert_eq!(rendered(&shown, &one_table()).unwrap(), shown, "nothing is left to write");
        assert!(rendered(page, &Tables::new()).unwrap_err().to_string().contains("there is no"));
        assert!(rendered("# P\n", &one_table()).unwrap_err().to_string().contains("is not shown"));
    }

    #[test]
    fn what_was_measured_goes_to_its_row_and_an_unknown_one_is_refused() {
        let mut tables = one_table();
        let measured = |what: &str| Measured {
            what: what.into(),
            value: "7".into(),
            machine: "E2".into(),
            commit: "0123456789".into(),
            date: "2026-12-01".into(),
        };
        take(&mut tables, &measured("a queue")).unwrap();
        assert_eq!((tables["speed"][0].value.as_str(), tables["speed"][1].value.as_str()), ("7", "1"));
        assert_eq!(tables["speed"][0].commit, "0123456789");
        let changed = Measured { commit: "0123456789-dirty".into(), ..measured("a queue") };
        assert!(take(&mut tables, &changed).unwrap_err().to_string().contains("expected a commit"));
        assert!(take(&mut tables, &measured("a cue")).unwrap_err().to_string().contains("names 0 figures"));
    }

    #[test]
    fn two_figures_of_one_name_are_found() {
        let mut tables = one_table();
        assert_eq!(named_twice(&tables), Vec::<String>::new());
        tables.insert("size".to_owned(), vec![row("a queue", None)]);
        assert_eq!(named_twice(&tables).len(), 1, "in two tables, too");
    }

    #[test]
    fn a_new_figure_without_its_commit_is_found() {
        let mut tables = one_table();
        assert_eq!(without_commit(&tables), Vec::<String>::new(), "old ones say so");
        tables.values_mut().flatten().for_each(|row| row.date = "2026-12-01".into());
        assert_eq!(without_commit(&tables).len(), 2);
        tables.values_mut().flatten().for_each(|row| row.commit = "25c74e3".into());
        assert_eq!(without_commit(&tables), Vec::<String>::new());
        tables.values_mut().flatten().for_each(|row| row.commit.clear());
        assert_eq!(without_commit(&tables).len(), 2);
        tables.values_mut().flatten().for_each(|row| row.value = NOT_MEASURED.into());
        assert_eq!(without_commit(&tables), Vec::<String>::new(), "there is nothing of which it could be");
        for wrong in ["", "25c74e", "25c74e3-dirty", "HEAD"] {
            assert!(!is_commit(wrong), "{wrong}");
        }
    }

    #[test]
    fn criterion_counts_per_element() {
        let estimates = r#"{"median": {"point_estimate": 1000.0}, "mean": {"point_estimate": 1.0}}"#;
        let of = |throughput| format!(r#"{{"full_id": "ranker/one", "throughput": {throughput}}}"#);
        let named = |ns| ("ranker/one".to_owned(), ns);
        assert_eq!(per_element_ns(estimates, &of(r#"{"Elements": 50}"#)).unwrap(), named(20.0));
        assert_eq!(per_element_ns(estimates, &of("null")).unwrap(), named(1000.0));
        assert!(per_element_ns("{}", &of("null")).is_err() && per_element_ns(estimates, "{}").is_err());
    }

    #[test]
    fn what_criterion_measured_since_the_commit_goes_to_the_rows_that_name_it() {
        let results = std::env::temp_dir().join(format!("xtask-figures-{}", std::process::id()));
        // Criterion's folders have no `/` in their names.
        let new = results.join("ranker_one/1x8/new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("estimates.json"), r#"{"median": {"point_estimate": 12.4}}"#).unwrap();
        fs::write(new.join("benchmark.json"), r#"{"full_id": "ranker/one", "throughput": null}"#).unwrap();
        let since = |at| criterion_ns(&results, at).unwrap();
        let (found, none) = (since(SystemTime::UNIX_EPOCH), since(SystemTime::now() + Duration::from_secs(3600)));
        fs::remove_dir_all(&results).unwrap();
        let head = Head { commit: "25c74e3".into(), date: "2026-12-01".into(), at: SystemTime::UNIX_EPOCH };
        let mut tables = one_table();
        take_criterion(&mut tables, &found, "E2", &head).unwrap();
        let row = &tables["speed"][1];
        assert_eq!((&*row.value, &*row.machine, &*row.commit), ("**12**", "E2", "25c74e3"));
        assert_eq!(tables["speed"][0].value, "1", "it is no benchmark of Criterion");
        assert!(none.is_empty());
        assert!(take_criterion(&mut tables, &none, "E2", &head).unwrap_err().to_string().contains("make bench"));
    }

    #[test]
    fn times_are_in_the_unit_of_their_row() {
        let shown = |ns, unit, bound| in_unit(ns, unit, bound).unwrap();
        assert_eq!(shown(68.4, "ns per request", "–"), "68");
        assert_eq!(shown(9_540.0, "µs", "20"), "9.5");
        assert_eq!(shown(9_540.0, "µs", "9"), "**9.5**");
        assert_eq!(shown(1_240_000.0, "ms", "2"), "1.2");
        assert_eq!(shown(64_000_000.0, "s", "1 s of search"), "0.06");
        assert!(in_unit(1.0, "requests/s", "–").is_err() && in_unit(1.0, "", "–").is_err());
    }
}
