//! `symphony describe`: everything about one thing, on a page.
//!
//! Pages are made of a sample of the cluster, without I/O: `model`, `place` (GPUs, sub-clusters), `member`.

mod member;
mod model;
mod pipeline;
mod place;
mod requests;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use symphony_protocol::view::View;

use super::get_page::yaml;
use crate::cli::{DescribeArgs, Described, Format};
use crate::exit::bad_input;
use crate::inspect::events;
use crate::inspect::sample::{Sample, Sampler};

/// The timeout for finding a replica that answers.
const VIEW_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &DescribeArgs) -> anyhow::Result<()> {
    let sample = match args.what {
        Described::Model | Described::Member => Sampler::new(&args.cluster, &args.public)?.take(Instant::now()).await?,
        // Frontends know nothing of them, and need not see a key.
        Described::Pipeline | Described::Gpu | Described::Subcluster => {
            Sample::of_view(Duration::ZERO, args.cluster.control()?.get(true, VIEW_WITHIN).await?)
        }
    };
    let described = describe(&sample, args.what, &args.name).map_err(bad_input)?;
    match args.output {
        Format::Table | Format::Wide => print!("{}", described.text()),
        Format::Json => println!("{}", serde_json::to_string_pretty(&described.json)?),
        Format::Yaml => print!("{}", yaml(&described.json)?),
    }
    Ok(())
}

fn describe(sample: &Sample, what: Described, name: &str) -> Result<Description, String> {
    match what {
        Described::Model => model::describe(sample, name),
        Described::Pipeline => pipeline::describe(&sample.view, name),
        Described::Gpu => place::gpu(&sample.view, name),
        Described::Subcluster => place::subcluster(&sample.view, name),
        Described::Member => member::describe(sample, name),
    }
}

/// A page: what it is about, its facts, and lists of lines.
struct Description {
    title: String,
    facts: Vec<(&'static str, String)>,
    lists: Vec<(&'static str, Vec<String>)>,
    json: Value,
}

impl Description {
    /// With the events that name one of these as its last list.
    fn with_events(mut self, view: &View, names: &[&str]) -> Self {
        let (lines, json) = events::about(view, names);
        self.lists.push(("recent events", lines));
        self.json["events"] = json;
        self
    }

    /// Facts without words, and empty lists, are left out.
    fn text(&self) -> String {
        let facts: Vec<_> = self.facts.iter().filter(|(_, fact)| !fact.is_empty()).collect();
        let width = facts.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let mut text = format!("{}\n", self.title);
        for (label, fact) in facts {
            text.push_str(&format!("  {label:width$}  {fact}\n"));
        }
        for (label, lines) in self.lists.iter().filter(|(_, lines)| !lines.is_empty()) {
            text.push_str(&format!("{label}\n"));
            for line in lines {
                text.push_str(&format!("  {line}\n"));
            }
        }
        text
    }
}

/// The elements of `get` in JSON whose row, in the order of the table, is wanted.
fn elements(shown: Value, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let Value::Array(all) = shown else { return Vec::new() };
    all.into_iter().filter(wanted).collect()
}

/// A page about one object of this kind, as a value, with the row of `get`.
fn value(kind: &str, name: &str, elements: &[Value]) -> Value {
    json!({ "kind": kind, "name": name, "items": elements })
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{EventView, HolderView, Shadow, Traffic};
    use symphony_types::{BackendId, ModelId};

    use super::*;

    /// The cluster of `top`'s tests with two versions of a model.
    fn sample() -> Sample {
        let mut sample = crate::inspect::scene::sample(1);
        let view = &mut sample.view;
        let mut second = view.models[&ModelId::new(1)].clone();
        second.spec.name = "m@2".into();
        let boot = second.holders[&BackendId::new(1)].boot;
        second.holders.insert(BackendId::new(1), HolderView { boot, state: Err("no file".into()) });
        view.models.insert(ModelId::new(3), second);
        let shadow = Some(Shadow { version: 2, percent: 5 });
        view.traffic.insert("m".into(), Traffic { weights: [(1, 1)].into(), shadow });
        let event = |index, what: &str| EventView { index, at_unix_ms: 1_700_000_000_000, what: what.into() };
        view.events = vec![
            event(1, "model m@2 failed on b1: no file"),
            event(2, "model mm (m9) unloaded"),
            event(3, "model quiet (m2) unloaded"),
        ];
        sample
    }

    #[test]
    fn a_model_is_described_with_its_versions_its_traffic_and_what_happened_to_it() {
        let described = describe(&sample(), Described::Model, "m").unwrap();
        let text = described.text();
        for words in [
            "model m\n",
            "traffic",
            "100 % to version 1, copies of 5 % to version 2",
            "m (m1): ready",
            "m@2 (m3): failed: no file",
            "25 ms",
            "on pool (s1), led by n1",
            "m@2 on b-1: failed: no file",
            "2 waited",
            "model m@2 failed on b-1 (b1): no file",
        ] {
            assert!(text.contains(words), "`{words}` is not in\n{text}");
        }
        assert!(!text.contains("unloaded"), "what happened to others\n{text}");
        // 900 of 1000 within 20 ms; a tenth was refused.
        assert!(text.contains("900 in time, 50 late, 40 dropped, 10 failed, 100 refused"), "{text}");
        let json = &described.json;
        assert_eq!(
            (json["items"].as_array().map(Vec::len), json["events"].as_array().map(Vec::len)),
            (Some(2), Some(1))
        );
        assert_eq!(json["requests"]["m"]["in_time"], 900);
        let one = describe(&sample(), Described::Model, "m@2").unwrap();
        assert_eq!(one.json["items"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_name_that_looks_like_an_id_is_a_name_first() {
        let mut sample = sample();
        sample.view.models.get_mut(&ModelId::new(1)).unwrap().spec.name = "m2".into();
        let title = |what, name: &str| describe(&sample, what, name).unwrap().title;
        assert_eq!(title(Described::Model, "m2"), "model m2", "and not quiet, whose id is m2");
        assert_eq!(title(Described::Model, "m3"), "model m@2", "nothing is called so");
        let mut sample = crate::inspect::scene::sample(1);
        sample.view.subclusters.values_mut().for_each(|own| {
            if own.name == "spare" {
                own.name = "s1".into();
            }
        });
        assert!(describe(&sample, Described::Subcluster, "s1").unwrap().text().starts_with("sub-cluster s1\n"));
    }

    #[test]
    fn gpus_subclusters_and_processes_are_described_and_names_that_are_none_are_refused_with_near_ones() {
        let text = |what, name: &str| describe(&sample(), what, name).map(|described| described.text());
        let gpu = text(Described::Gpu, "g4").unwrap();
        assert!(gpu.starts_with("GPU g4\n") && gpu.contains("a100") && gpu.contains("b-1 (b1)"), "{gpu}");
        let pool = text(Described::Subcluster, "pool").unwrap();
        assert!(pool.starts_with("sub-cluster pool\n") && pool.contains("m (m1): ready"), "{pool}");
        let backend = text(Described::Member, "b-1").unwrap();
        assert!(backend.starts_with("backend b-1\n") && backend.contains("g4: a100"), "{backend}");
        assert!(backend.contains("failed on b-1 (b1)"), "{backend}");
        let frontend = text(Described::Member, "front").unwrap();
        assert!(frontend.contains("m: 1000 requests"), "{frontend}");
        for (what, name, near) in [
            (Described::Model, "quit", "similar names: quiet"),
            (Described::Gpu, "g9", "g4"),
            (Described::Subcluster, "pol", "similar names: pool"),
            (Described::Member, "fornt", "similar names: front"),
        ] {
            let message = text(what, name).unwrap_err();
            assert!(message.contains(near), "{message}");
        }
    }
}
