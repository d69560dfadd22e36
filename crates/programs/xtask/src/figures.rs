//! The tables of performance.md: each is a file in docs/internals/figures, whose rows benchmarks bring up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

const PAGE: &str = "docs/internals/performance.md";
const TABLES: &str = "docs/internals/figures";
/// Where Criterion stores its results.
const CRITERION: &str = "target/criterion";
/// Stands for the commit of a figure from before it was recorded; no figure after that day has it.
const NO_COMMIT: &str = "before commits were recorded";
const NO_COMMIT_UNTIL: &str = "2026-11-27";

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
    /// Criterion's name of the benchmark, for figures in nanoseconds per element.
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
    if page != rendered(&page, &tables)? {
        problems.push(format!("{PAGE}: stale; run `cargo xtask figures`"));
    }
    Ok(problems)
}

/// New figures that do not say what was measured.
fn without_commit(tables: &Tables) -> Vec<String> {
    let of_old = |row: &Row| row.commit == NO_COMMIT && row.date.as_str() <= NO_COMMIT_UNTIL;
    let rows = tables.iter().flat_map(|(name, rows)| rows.iter().map(move |row| (name, row)));
    let missing = rows.filter(|(_, row)| !is_commit(&row.commit) && !of_old(row));
    let told = missing.map(|(name, Row { what, commit, .. })| {
        format!("{TABLES}/{name}.json: `{what}` is of commit `{commit}`; expected the 7 to 40 hex digits of one")
    });
    told.collect()
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
        take_criterion(&mut tables, &root.join(CRITERION), machine, &head(root)?)?;
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

/// Takes the median of each benchmark that a row names and that Criterion has run.
fn take_criterion(tables: &mut Tables, results: &Path, machine: &str, (commit, date): &(String, String)) -> Result<()> {
    let mut taken = 0;
    for row in tables.values_mut().flatten() {
        let Some(name) = &row.criterion else { continue };
        let new = results.join(name).join("new");
        if !new.exists() {
            continue;
        }
        let per_element = per_element_ns(&read(&new.join("estimates.json"))?, &read(&new.join("benchmark.json"))?)?;
        (row.value, row.machine) = (format!("{per_element:.0}"), machine.to_owned());
        (row.commit, row.date) = (commit.clone(), date.clone());
        taken += 1;
    }
    ensure!(taken > 0, "{} has none of the benchmarks that the tables name; run `make bench`", results.display());
    Ok(())
}

/// Nanoseconds for each element of an iteration.
fn per_element_ns(estimates: &str, benchmark: &str) -> Result<f64> {
    let estimates: serde_json::Value = serde_json::from_str(estimates)?;
    let benchmark: serde_json::Value = serde_json::from_str(benchmark)?;
    let median = estimates["median"]["point_estimate"].as_f64().context("Criterion gave no median")?;
    Ok(median / benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0))
}

/// The last commit and its date.
fn head(root: &Path) -> Result<(String, String)> {
    let git = std::process::Command::new("git")
        .args(["log", "-1", "--abbrev=10", "--format=%h %cs"])
        .current_dir(root)
        .output();
    let output = git.context("cannot start git")?;
    ensure!(output.status.success(), "git knows no commit here");
    let told = String::from_utf8_lossy(&output.stdout);
    let (commit, date) = told.trim().split_once(' ').context("git named no commit and date")?;
    Ok((commit.to_owned(), date.to_owned()))
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
        let commit = if commit == NO_COMMIT { "–" } else { commit.as_str() };
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
    fn a_new_figure_without_its_commit_is_found() {
        let mut tables = one_table();
        assert_eq!(without_commit(&tables), Vec::<String>::new(), "old ones say so");
        tables.values_mut().flatten().for_each(|row| row.date = "2026-12-01".into());
        assert_eq!(without_commit(&tables).len(), 2);
        tables.values_mut().flatten().for_each(|row| row.commit = "25c74e3".into());
        assert_eq!(without_commit(&tables), Vec::<String>::new());
        for wrong in ["", "25c74e", "25c74e3-dirty", "HEAD"] {
            assert!(!is_commit(wrong), "{wrong}");
        }
    }

    #[test]
    fn criterion_counts_per_element() {
        let estimates = r#"{"median": {"point_estimate": 1000.0}, "mean": {"point_estimate": 1.0}}"#;
        assert_eq!(per_element_ns(estimates, r#"{"throughput": {"Elements": 50}}"#).unwrap(), 20.0);
        assert_eq!(per_element_ns(estimates, r#"{"throughput": null}"#).unwrap(), 1000.0);
        assert!(per_element_ns("{}", "{}").is_err());
    }
}
