//! What `get` prints: a table for people, and the same for programs.

use serde_json::Value;
use symphony_types::VersionedName;

use crate::cli::{Format, What};
use crate::exit::bad_input;
use crate::inspect::{Shown, table};
use crate::suggestions::unknown;

/// A table, and the same as a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Page {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) json: Value,
}

impl From<Shown> for Page {
    fn from((header, rows, json): Shown) -> Self {
        Self { header: header.to_vec(), rows, json }
    }
}

impl Page {
    /// As it is printed.
    pub(super) fn text(&self, format: Format) -> anyhow::Result<String> {
        match format {
            Format::Table | Format::Wide => Ok(table::text(&self.header, &self.rows)),
            Format::Json => Ok(format!("{}\n", serde_json::to_string_pretty(&self.json)?)),
            Format::Yaml => yaml(&self.json),
        }
    }

    /// As it is printed where another one may follow: JSON on a line, YAML as a document.
    pub(super) fn text_of_many(&self, format: Format) -> anyhow::Result<String> {
        match format {
            Format::Table | Format::Wide => Ok(format!("{}\n", self.text(format)?)),
            Format::Json => Ok(format!("{}\n", self.json)),
            Format::Yaml => Ok(format!("---\n{}", yaml(&self.json)?)),
        }
    }

    /// Without what is not called so.
    ///
    /// # Errors
    /// If nothing is, or this kind has no names.
    pub(super) fn only(self, what: What, name: Option<&str>) -> anyhow::Result<Self> {
        self.called(what, name, true)
    }

    /// The same, where nothing may be called so any more unless it is needed.
    pub(super) fn called(self, what: What, name: Option<&str>, is_needed: bool) -> anyhow::Result<Self> {
        let Some(name) = name else { return Ok(self) };
        // The columns that name a row, the one for messages last.
        let (kind, list, columns): (_, _, &[&str]) = match what {
            What::Models => ("model", "models", &["ID", "NAME"]),
            What::Pipelines => ("pipeline", "pipelines", &["NAME"]),
            What::Gpus => ("GPU", "gpus", &["BACKEND", "ID"]),
            What::Subclusters => ("sub-cluster", "subclusters", &["ID", "NAME"]),
            What::Members => ("process", "members", &["ID", "NAME"]),
            What::Clusters => ("cluster", "clusters", &["CLUSTER"]),
            What::Ledger => ("frontend", "ledger", &["FRONTEND"]),
            What::Epochs | What::Events => {
                return Err(bad_input(format!("`{name}`: epochs and events have no names; expected none")));
            }
        };
        let columns: Vec<_> =
            columns.iter().filter_map(|column| self.header.iter().position(|head| head == column)).collect();
        let names = |row: &[String]| columns.iter().filter_map(|&column| row.get(column).cloned()).collect::<Vec<_>>();
        let version = self.header.iter().position(|&head| head == "VERSION");
        let is_called = |row: &Vec<String>| {
            names(row).iter().any(|own| match what {
                What::Models => own == name || VersionedName::parse(own).name == name,
                // Its version is in a column of its own.
                What::Pipelines => {
                    let asked = VersionedName::parse(name);
                    let is_version = || version.and_then(|at| row.get(at)) == Some(&asked.version.to_string());
                    own == name || own == asked.name && is_version()
                }
                // Schedulers have no name but that of their certificate.
                What::Members => {
                    own == name || name.strip_prefix("scheduler-").is_some_and(|id| *own == format!("n{id}"))
                }
                _ => own == name,
            })
        };
        let rows: Vec<_> = self.rows.iter().filter(|row| is_called(row)).cloned().collect();
        if rows.is_empty() && is_needed {
            let known: Vec<_> =
                self.rows.iter().filter_map(|row| names(row).pop()).filter(|own| !own.is_empty()).collect();
            let list = format!("symphony get {list}");
            return Err(bad_input(unknown(kind, name, known.iter().map(String::as_str), &list)));
        }
        let json = match self.json {
            // An element for each row.
            Value::Array(all) => {
                let both = all.into_iter().zip(&self.rows);
                both.filter(|(_, row)| is_called(row)).map(|(one, _)| one).collect()
            }
            mut object => {
                for list in ["clusters", "frontends"] {
                    if let Some(Value::Array(all)) = object.get_mut(list) {
                        all.retain(|one| one["name"] == name);
                    }
                }
                object
            }
        };
        Ok(Self { header: self.header, rows, json })
    }
}

/// A value as YAML, with a line break at its end.
pub(super) fn yaml(value: &Value) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_saphyr::to_string(value)?.trim_end()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page() -> Page {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let json = json!([{ "id": 1, "name": "m@1" }, { "id": 2, "name": "m@2" }, { "id": 3, "name": "other" }]);
        Page {
            header: vec!["ID", "NAME"],
            rows: vec![row(["m1", "m@1"]), row(["m2", "m@2"]), row(["m3", "other"])],
            json,
        }
    }

    #[test]
    fn a_name_is_that_of_all_versions_and_an_id_that_of_one() {
        let of = |name: &str| page().only(What::Models, Some(name)).map(|page| page.json);
        let ids =
            |name: &str| of(name).unwrap().as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
        assert_eq!(ids("m"), [1, 2]);
        assert_eq!(ids("m@2"), [2]);
        assert_eq!(ids("m3"), [3]);
        let message = of("othr").unwrap_err().to_string();
        assert_eq!(message, "no model is named `othr`; similar names: other; see `symphony get models`");
        assert!(page().only(What::Events, Some("x")).unwrap_err().to_string().contains("no names"));
        let gone = page().called(What::Models, Some("othr"), false).unwrap();
        assert_eq!((gone.rows.len(), gone.json), (0, json!([])), "it was there, and somebody watches");
        let table = page().only(What::Models, Some("other")).unwrap().text(Format::Table).unwrap();
        assert_eq!(table, "ID  NAME\nm3  other\n");
    }

    #[test]
    fn a_version_of_a_pipeline_is_named_as_it_is_loaded() {
        let row = |name: &str, version: &str| vec![name.to_owned(), version.to_owned()];
        let rows = vec![row("p", "1"), row("p", "2"), row("q", "2")];
        let page = Page { header: vec!["NAME", "VERSION"], rows, json: json!([1, 2, 3]) };
        let of = |name: &str| page.clone().only(What::Pipelines, Some(name)).map(|page| page.json);
        assert_eq!((of("p").unwrap(), of("p@2").unwrap()), (json!([1, 2]), json!([2])));
        assert!(of("p@3").unwrap_err().to_string().contains("`p@3`"));
    }

    #[test]
    fn yaml_is_the_value_that_json_is() {
        let long =
            "a sentence that is much longer than eighty characters, with a colon: and a # in it, on one line only";
        let value = json!([{ "name": "yes", "none": null, "n": 1.5, "big": 9_007_199_254_740_993_u64, "list": [], "nested": { "a b": [true] },
                             "lines": "one\ntwo\n", "long": long }]);
        let text = yaml(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(text.contains("\"yes\"") || text.contains("'yes'"), "{text}");
        let page = Page { json: value.clone(), ..page() };
        assert_eq!(page.text_of_many(Format::Json).unwrap().lines().count(), 1);
        let many = page.text_of_many(Format::Yaml).unwrap().repeat(2);
        assert_eq!(serde_saphyr::from_multiple::<Value>(&many).unwrap(), [value.clone(), value]);
    }
}
