//! Grafana's dashboards: made from deploy/grafana/dashboards.toml, so that a panel is three lines of text and not forty
//! of JSON. A test of the program that has all metrics checks their names.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The folder, from the root of the repository.
const FOLDER: &str = "deploy/grafana";
const DESCRIPTION: &str = "deploy/grafana/dashboards.toml";

/// Grafana's grid: its width, and the size of a panel.
const GRID_WIDTH: usize = 24;
const PANEL_WIDTH: usize = 8;
const PANEL_HEIGHT: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dashboard: Vec<Dashboard>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    /// Name of the file without its end, and Grafana's id.
    file: String,
    title: String,
    help: String,
    variable: Option<Variable>,
    row: Vec<Row>,
}

/// What is chosen at the top of a dashboard.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    query: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: String,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    #[serde(default)]
    help: String,
    unit: String,
    max: Option<f64>,
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    expr: String,
    legend: String,
}

/// Files that differ from the description.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (file, text) in files(root)? {
        let path = root.join(FOLDER).join(&file);
        if fs::read_to_string(path).ok().as_deref() != Some(text.as_str()) {
            stale.push(format!("{FOLDER}/{file}: stale; run `cargo xtask dashboards`"));
        }
    }
    Ok(stale)
}

/// Rewrites the files.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (file, text) in files(root)? {
        let path = root.join(FOLDER).join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(root.join(DESCRIPTION)).with_context(|| format!("cannot read {DESCRIPTION}"))?;
    let Description { dashboard } = toml::from_str(&text).with_context(|| DESCRIPTION.to_owned())?;
    ensure!(!dashboard.is_empty(), "{DESCRIPTION}: no dashboards");
    let file = |dashboard: &Dashboard| {
        let text = serde_json::to_string_pretty(&model(dashboard))? + "\n";
        Ok((format!("{}.json", dashboard.file), text))
    };
    dashboard.iter().map(file).collect()
}

/// What Grafana imports.
fn model(dashboard: &Dashboard) -> Value {
    let datasource = json!({ "type": "prometheus", "uid": "${datasource}" });
    let (mut panels, mut y) = (Vec::new(), 0);
    for row in &dashboard.row {
        let id = panels.len() + 1;
        panels.push(json!({ "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
                            "gridPos": { "x": 0, "y": y, "w": GRID_WIDTH, "h": 1 } }));
        y += 1;
        let columns = GRID_WIDTH / PANEL_WIDTH;
        for (index, panel) in row.panels.iter().enumerate() {
            let at = json!({ "x": index % columns * PANEL_WIDTH, "y": y + index / columns * PANEL_HEIGHT,
                             "w": PANEL_WIDTH, "h": PANEL_HEIGHT });
            panels.push(panel_model(panel, panels.len() + 1, &at, &datasource));
        }
        y += row.panels.len().div_ceil(columns) * PANEL_HEIGHT;
    }
    let mut variables = vec![json!({ "name": "datasource", "label": "Data source", "type": "datasource",
                                     "query": "prometheus" })];
    variables.extend(dashboard.variable.iter().map(|variable| {
        json!({ "name": variable.name, "label": variable.name, "type": "query", "datasource": datasource,
                "query": { "query": variable.query, "refId": "variable" }, "definition": variable.query,
                "refresh": 2, "sort": 1 })
    }));
    json!({
        "uid": dashboard.file, "title": dashboard.title, "description": dashboard.help, "tags": ["symphony"],
        "schemaVersion": 39, "editable": true, "graphTooltip": 1, "refresh": "15s",
        "time": { "from": "now-1h", "to": "now" }, "timezone": "browser",
        "templating": { "list": variables }, "panels": panels,
    })
}

fn panel_model(panel: &Panel, id: usize, at: &Value, datasource: &Value) -> Value {
    let targets = panel.lines.iter().zip('A'..).map(|(line, letter)| {
        json!({ "refId": letter.to_string(), "datasource": datasource, "expr": line.expr,
                "legendFormat": line.legend })
    });
    let mut defaults = json!({ "unit": panel.unit, "min": 0 });
    if let Some(max) = panel.max {
        defaults["max"] = json!(max);
    }
    json!({
        "id": id, "type": "timeseries", "title": panel.title, "description": panel.help, "gridPos": at,
        "datasource": datasource, "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": { "tooltip": { "mode": "multi", "sort": "desc" } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_stand_side_by_side_in_rows_and_have_ids_of_their_own() {
        let text = r#"
            [[dashboard]]
            file = "f"
            title = "F"
            help = ""
            variable = { name = "model", query = "label_values(x, model)" }
            [[dashboard.row]]
            title = "one"
            panels = [
                { title = "a", unit = "s", lines = [{ expr = "a", legend = "" }, { expr = "b", legend = "" }] },
                { title = "b", unit = "s", lines = [] }, { title = "c", unit = "s", lines = [] },
                { title = "d", unit = "s", max = 1, lines = [] },
            ]
            [[dashboard.row]]
            title = "two"
            panels = [{ title = "e", unit = "s", lines = [] }]
        "#;
        let description: Description = toml::from_str(text).unwrap();
        let made = model(&description.dashboard[0]);
        let panels = made["panels"].as_array().unwrap();
        let ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7]);
        let place = |index: usize| (&panels[index]["gridPos"]["x"], &panels[index]["gridPos"]["y"]);
        assert_eq!(place(3), (&json!(16), &json!(1)));
        assert_eq!(place(4), (&json!(0), &json!(9)));
        assert_eq!(place(5), (&json!(0), &json!(17)), "the next row begins below the last panel");
        assert_eq!(panels[1]["targets"][1]["refId"], "B");
        assert_eq!(panels[4]["fieldConfig"]["defaults"]["max"], 1.0);
        assert_eq!(made["templating"]["list"][1]["name"], "model");
    }
}
