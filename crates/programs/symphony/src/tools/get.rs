//! `symphony get`: the cluster as tables, JSON or YAML.

use std::time::Duration;

use symphony_protocol::view::View;
use symphony_transport::{ControlClient, FederationClient};
use symphony_types::Nanos;

use super::get_page::Page;
use super::operation::query_error;
use super::{federation, pipeline, plan, watch, wide};
use crate::cli::{Format, GetArgs, What};
use crate::exit::bad_input;
use crate::inspect::frontend_page::PageClient;
use crate::inspect::{Shown, events, frontend_page, gpus, ledger, members, models, subclusters};

/// The timeout for finding a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<()> {
    let source = source(args)?;
    let name = args.name.as_deref();
    if !args.watch {
        let (page, _) = ask(args, &source).await?;
        print!("{}", page.only(args.what, name)?.text(args.output)?);
        return Ok(());
    }
    watch::run(async |is_first: bool| {
        let (page, compared) = ask(args, &source).await?;
        // An object that is gone is shown as nothing.
        let text = |page: Page| -> anyhow::Result<String> {
            page.called(args.what, name, is_first)?.text_of_many(args.output)
        };
        anyhow::Ok((text(page)?, text(compared)?))
    })
    .await
}

/// What is asked. It stays the same during a watch, even if the current context changes.
enum Source {
    /// A cluster, and its frontends where they are asked, too.
    Cluster(ControlClient, Option<PageClient>),
    Federation(FederationClient),
}

fn source(args: &GetArgs) -> anyhow::Result<Source> {
    let is_federation = args.federation.federation.is_some();
    match args.what {
        What::Clusters => Ok(Source::Federation(federation::client(&args.federation, &args.cluster)?)),
        What::Events | What::Epochs if is_federation => {
            Ok(Source::Federation(federation::client(&args.federation, &args.cluster)?))
        }
        what if is_federation => Err(bad_input(format!(
            "--federation: a federation shows its clusters, epochs and events; `{}` is asked of one cluster",
            plural(what)
        ))),
        What::Ledger => {
            let pages = frontend_page::client(args.public.access(&args.cluster)?)?;
            Ok(Source::Cluster(args.cluster.control()?, Some(pages)))
        }
        _ => Ok(Source::Cluster(args.cluster.control()?, None)),
    }
}

/// Asks; the second page is without ages, to be compared with others.
async fn ask(args: &GetArgs, source: &Source) -> anyhow::Result<(Page, Page)> {
    let page = match source {
        Source::Federation(client) => {
            let view = client.get(!args.stale, WITHIN).await?;
            Page::from(match args.what {
                What::Events => events::of_federation(&view),
                What::Epochs => plan::epochs_of_federation(&view),
                _ => federation::show(&view),
            })
        }
        Source::Cluster(control, pages) => {
            let view = control.get(!args.stale, WITHIN).await.map_err(query_error)?;
            let Some(pages) = pages else {
                return Ok((page(args, &view), page(args, &without_ages(view))));
            };
            Page::from(ledger::show(&view, pages).await?)
        }
    };
    Ok((page.clone(), page))
}

fn page(args: &GetArgs, view: &View) -> Page {
    let shown = show(view, args.what);
    if args.output == Format::Wide { wide::page(view, args.what, shown) } else { Page::from(shown) }
}

/// Without what differs each time although nothing has changed.
fn without_ages(mut view: View) -> View {
    for frontend in view.frontends.values_mut() {
        let is_up = frontend.silent.is_none_or(|silent| Duration::from(silent).as_secs() < members::SILENT_S);
        frontend.silent =
            frontend.silent.map(|_| if is_up { Nanos::ZERO } else { Nanos::from_millis(members::SILENT_S * 1000) });
    }
    for member in view.group.values_mut() {
        member.silent = members::silent_s(member).map(|_| Nanos::from_millis(members::REPLICA_SILENT_S * 1000));
        member.stuck = member.stuck.map(|_| Nanos::ZERO);
    }
    for advice in view.subclusters.values_mut().filter_map(|subcluster| subcluster.advice.as_mut()) {
        for slow in &mut advice.slow {
            slow.quarantined_ms = slow.quarantined_ms.map(|_| 0);
        }
    }
    view
}

/// A kind as the command line has it.
fn plural(what: What) -> String {
    clap::ValueEnum::to_possible_value(&what).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

pub(super) fn show(view: &View, what: What) -> Shown {
    match what {
        What::Models => models::show(view),
        What::Pipelines => pipeline::show(view),
        What::Gpus => gpus::show(view),
        What::Subclusters => subclusters::show(view),
        What::Members | What::Ledger | What::Clusters => members::show(view),
        What::Epochs => plan::epochs(view),
        What::Events => events::show(view),
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{GroupMemberView, GroupRole};
    use symphony_types::NodeId;

    use super::*;

    #[test]
    fn a_frontend_that_stays_silent_is_no_change() {
        let silent = |millis| {
            let mut view = crate::inspect::scene::view();
            view.frontends.values_mut().for_each(|frontend| frontend.silent = Some(Nanos::from_millis(millis)));
            Page::from(members::show(&without_ages(view)))
        };
        assert_eq!(silent(100), silent(1200), "up");
        assert_eq!(silent(7000), silent(60_000), "silent");
        assert_ne!(silent(100), silent(7000));
    }

    #[test]
    fn a_replica_that_stays_silent_or_stuck_is_no_change() {
        let compared = |silent: u64, stuck: Option<u64>| {
            let mut view = crate::inspect::scene::view();
            let member = GroupMemberView {
                control_addr: String::new(),
                role: GroupRole::Voter,
                applied_index: 39,
                lag: 4,
                level: None,
                silent: Some(Nanos::from_millis(silent)),
                stuck: stuck.map(Nanos::from_millis),
            };
            view.group.insert(NodeId::new(2), member);
            Page::from(members::show(&without_ages(view)))
        };
        assert_eq!(compared(3, None), compared(1_200, None), "heard");
        assert_eq!(compared(5_000, None), compared(9_000, None), "silent");
        assert_eq!(compared(3, Some(3_000)), compared(4, Some(9_000)), "stuck");
        assert_ne!(compared(3, None), compared(5_000, None));
        assert_ne!(compared(3, None), compared(3, Some(3_000)));
    }
}
