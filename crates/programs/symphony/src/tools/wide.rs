//! The further columns of `get -o wide`.

use symphony_protocol::view::{ModelSource, ModelView, View};

use super::get_page::Page;
use crate::cli::What;
use crate::inspect::Shown;

/// What `get` shows, with more columns where there are more.
pub(super) fn page(view: &View, what: What, shown: Shown) -> Page {
    let (header, cells) = more(view, what);
    let mut page = Page::from(shown);
    page.header.extend(header);
    for (row, cells) in page.rows.iter_mut().zip(cells) {
        row.extend(cells);
    }
    page
}

/// More columns, and their cells of each row, in the order of the rows.
fn more(view: &View, what: What) -> (&'static [&'static str], Vec<Vec<String>>) {
    match what {
        What::Models => (&["KINDS", "BACKENDS", "SOURCE", "TRUNK"], models(view)),
        What::Gpus => (&["DUTY", "EXECUTOR", "ADDRESS"], gpus(view)),
        What::Subclusters => (&["MODELS", "BACKENDS"], subclusters(view)),
        What::Members => (&["OTHER ADDRESSES"], members(view)),
        What::Pipelines | What::Clusters | What::Ledger | What::Epochs | What::Events => (&[], Vec::new()),
    }
}

fn models(view: &View) -> Vec<Vec<String>> {
    let cells = view.models.values().map(|model| {
        let kinds: Vec<_> = model.spec.profiles.keys().cloned().collect();
        let ready = model.holders.iter().filter(|(_, holder)| holder.state.is_ok());
        let ready: Vec<_> = ready.filter_map(|(id, _)| Some(view.backends.get(id)?.name.clone())).collect();
        vec![
            kinds.join(","),
            ready.join(","),
            source(&model.spec.source),
            trunk(view, model).unwrap_or_else(|| "-".to_owned()),
        ]
    });
    cells.collect()
}

/// The trunk that a model shares, and by how many models; none if it shares none.
pub(super) fn trunk(view: &View, model: &ModelView) -> Option<String> {
    model.shared_trunk().map(|trunk| format!("{trunk} of {}", view.family_of(model).len()))
}

/// Where a model's weights are.
pub(super) fn source(source: &ModelSource) -> String {
    source.onnx_path().unwrap_or("emulated").to_owned()
}

fn gpus(view: &View) -> Vec<Vec<String>> {
    let gpus = view.backends.values().flat_map(|backend| backend.gpus.iter().map(move |_| backend));
    gpus.map(|b| vec![b.duty.to_string(), b.executor.clone(), b.exec_addr.clone()]).collect()
}

fn subclusters(view: &View) -> Vec<Vec<String>> {
    let cells = view.subclusters.keys().map(|id| {
        let models = view.models.values().filter(|model| model.subcluster == *id).count();
        let backends = view.backends.values().filter(|backend| backend.subcluster == *id).count();
        vec![models.to_string(), backends.to_string()]
    });
    cells.collect()
}

/// As `get members` has them: replicas of the cluster or of the group only, backends, frontends.
fn members(view: &View) -> Vec<Vec<String>> {
    let ids: std::collections::BTreeSet<_> = view.nodes.keys().chain(view.group.keys()).collect();
    let schedulers = ids.into_iter().map(|id| {
        let addresses = |node: &symphony_protocol::view::NodeView| {
            format!("dispatch {}, beat {}", node.dispatch_addr, node.beat_addr)
        };
        view.nodes.get(id).map(addresses).unwrap_or_default()
    });
    let backends = view.backends.values().map(|_| String::new());
    let frontends = view.frontends.values().map(|frontend| format!("console {}", frontend.console_addr));
    schedulers.chain(backends).chain(frontends).map(|cell| vec![cell]).collect()
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::TrunkView;
    use symphony_types::CutDigest;

    use super::super::get::show;
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        let view = crate::inspect::scene::view();
        for what in [What::Models, What::Gpus, What::Subclusters, What::Members, What::Events] {
            let narrow = Page::from(show(&view, what));
            let wide = page(&view, what, show(&view, what));
            assert!(wide.rows.iter().all(|row| row.len() == wide.header.len()), "{what:?}: {wide:?}");
            assert_eq!((wide.rows.len(), &wide.json), (narrow.rows.len(), &narrow.json), "{what:?}");
            assert!(what == What::Events || wide.header.len() > narrow.header.len(), "{what:?}");
        }
    }

    #[test]
    fn a_family_is_shown_with_its_trunk_and_its_members() {
        let mut view = crate::inspect::scene::view();
        let trunk = Some(CutDigest::new(0x9a3f_0011_u128 << 96));
        let home = view.models.values().next().unwrap().subcluster;
        for model in view.models.values_mut() {
            model.subcluster = home;
            model.trunk = Some(TrunkView { cuts: trunk.into_iter().collect(), shared: trunk });
        }
        let (shown, names) = (show(&view, What::Models), view.models.values().map(|model| model.spec.name.clone()));
        let names: Vec<_> = names.collect();
        assert_eq!(shown.2[0]["family"]["models"], serde_json::json!(names));
        assert_eq!(shown.2[0]["family"]["trunk"], format!("{:032x}", 0x9a3f_0011_u128 << 96));
        let wide = page(&view, What::Models, shown);
        assert_eq!(wide.rows[0].last().unwrap(), &format!("9a3f0011 of {}", names.len()));
        view.models.values_mut().for_each(|model| model.trunk = None);
        let wide = page(&view, What::Models, show(&view, What::Models));
        assert!(wide.rows.iter().all(|row| row.last().unwrap() == "-"), "{wide:?}");
    }
}
