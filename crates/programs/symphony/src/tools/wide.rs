//! The further columns of `get -o wide`.

use symphony_protocol::view::{ModelSource, View};

use super::get::Shown;
use super::page::Page;
use crate::cli::What;

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
        What::Models => (&["KINDS", "BACKENDS", "SOURCE"], models(view)),
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
        vec![kinds.join(","), ready.join(","), source(&model.spec.source)]
    });
    cells.collect()
}

/// Where a model's weights are.
pub(super) fn source(source: &ModelSource) -> String {
    match source {
        ModelSource::Onnx(path) => path.clone(),
        ModelSource::Emulated => "emulated".to_owned(),
    }
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
    use super::super::get::show;
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        let view = crate::top::scene::view();
        for what in [What::Models, What::Gpus, What::Subclusters, What::Members, What::Events] {
            let narrow = Page::from(show(&view, what));
            let wide = page(&view, what, show(&view, what));
            assert!(wide.rows.iter().all(|row| row.len() == wide.header.len()), "{what:?}: {wide:?}");
            assert_eq!((wide.rows.len(), &wide.json), (narrow.rows.len(), &narrow.json), "{what:?}");
            assert!(what == What::Events || wide.header.len() > narrow.header.len(), "{what:?}");
        }
    }
}
