//! `symphony drain`, `cordon` and `uncordon`: set the duty of processes.

use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::view::{FrontendView, GroupMemberView, GroupRole, View};
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError, fresh_operation_id};
use symphony_types::{Duty, FrontendId, Member, Nanos, NodeId, OperationId};

use super::operation::{not_done, query_error};
use crate::cli::{DrainArgs, DutyArgs};
use crate::exit::bad_input;

/// How often a draining process is checked.
const CHECK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Who was silent for so long is not counted on.
const SILENT_MIN: Nanos = Nanos::from_millis(5_000);

/// The most models that a warning names.
const NAMED_MAX: usize = 10;

/// Sets a duty and prints it.
pub(crate) async fn set(args: &DutyArgs, duty: Duty) -> anyhow::Result<()> {
    let (_, member) = agree(args, duty).await?;
    println!("{member} is {duty}");
    Ok(())
}

/// Sets the duty to draining and waits until the process is drained.
pub(crate) async fn drain(args: &DrainArgs) -> anyhow::Result<()> {
    let (control, member) = agree(&args.duty, Duty::Draining).await?;
    let wait = Duration::from_secs(args.wait_s);
    if wait.is_zero() {
        println!("{member} is {}; see `symphony get members`", Duty::Draining);
        return Ok(());
    }
    let mut left = "the cluster has not answered".to_owned();
    // Watchers do not hear of another leader of the control group before something is agreed.
    let drained = async {
        loop {
            match control.get(true, AGREE_WITHIN).await.map(|view| rest(&view, member)) {
                Ok(None) => return,
                Ok(Some(rest)) => left = rest,
                Err(error) => left = error.to_string(),
            }
            tokio::time::sleep(CHECK_AGAIN_AFTER).await;
        }
    };
    match tokio::time::timeout(wait, drained).await {
        Ok(()) => {
            println!("{member} is drained: it may be stopped");
            Ok(())
        }
        Err(_) => Err(anyhow::anyhow!(
            "{member} is not drained after {} s: {left}. It stays cordoned; `symphony uncordon` takes that back",
            wait.as_secs()
        )),
    }
}

/// The work that a process still has; `None` if it can be stopped without loss.
fn rest(view: &View, member: Member) -> Option<String> {
    match member {
        Member::Scheduler(id) => {
            let led = view.subclusters.values().filter(|s| s.leader.is_some_and(|(leader, _)| leader == id));
            let names: Vec<_> = led.map(|s| s.name.as_str()).take(5).collect();
            if names.is_empty() && view.control_leader == Some(id) {
                return Some("it leads the control group (can another replica lead?)".to_owned());
            }
            (!names.is_empty())
                .then(|| format!("it leads {} and perhaps more (can another replica lead?)", names.join(", ")))
        }
        Member::Backend(id) => {
            let backend = view.backends.get(&id).filter(|b| b.up)?;
            (!backend.drained).then(|| "plans are out".to_owned())
        }
        Member::Frontend(id) => {
            let frontend = view.frontends.get(&id)?;
            (!frontend.drained).then(|| "requests are open".to_owned())
        }
    }
}

/// Makes the cluster agree on the duty.
async fn agree(args: &DutyArgs, duty: Duty) -> anyhow::Result<(ControlClient, Member)> {
    let (control, operation) = (args.cluster.control()?, args.operation.id());
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let member = find(&view, &args.member).map_err(bad_input)?;
    if let Some(warning) = loss(&view, member, duty) {
        eprintln!("warning: {warning}");
    }
    call(&control, member, duty, operation, AGREE_WITHIN).await.map_err(|error| not_done(operation, error))?;
    Ok((control, member))
}

/// What the cluster loses with the process, if that is more than room.
fn loss(view: &View, member: Member, duty: Duty) -> Option<String> {
    match member {
        Member::Backend(_) => left_without_gpu(view, member, duty),
        Member::Scheduler(id) if duty == Duty::Draining => left_without_quorum(view, id),
        Member::Frontend(id) if duty != Duty::Serving => left_without_frontend(view, id),
        Member::Scheduler(_) | Member::Frontend(_) => None,
    }
}

/// Whether its stop leaves fewer replicas than are a quorum, of those that answer and stay.
fn left_without_quorum(view: &View, id: NodeId) -> Option<String> {
    let voters = view.group.iter().filter(|(_, member)| member.role != GroupRole::Learner);
    let stays = |node: NodeId, member: &GroupMemberView| {
        let answers = is_heard(member.silent) && member.stuck.is_none();
        answers && view.nodes.get(&node).is_some_and(|node| node.up && node.duty != Duty::Draining)
    };
    let (mut all, mut staying, mut is_one) = (0, 0, false);
    for (&node, member) in voters {
        all += 1;
        is_one |= node == id;
        staying += usize::from(node != id && stays(node, member));
    }
    let quorum = all / 2 + 1;
    (is_one && staying < quorum).then(|| {
        format!(
            "without scheduler {id} the replicas that answer and stay are {staying} of {all}, and a quorum is {quorum}: within seconds \
             of its stop all requests are refused (control_plane_lost) until there is one again"
        )
    })
}

/// Whether it takes requests, and no other frontend does.
fn left_without_frontend(view: &View, id: FrontendId) -> Option<String> {
    let takes = |frontend: &FrontendView| frontend.duty.takes_work() && !frontend.leaving && is_heard(frontend.silent);
    let mut taking = view.frontends.iter().filter(|(_, frontend)| takes(frontend)).map(|(&frontend, _)| frontend);
    (taking.next() == Some(id) && taking.next().is_none())
        .then(|| format!("frontend {id} is the last one that takes requests: they are refused until there is another"))
}

fn is_heard(silent: Option<Nanos>) -> bool {
    silent.is_none_or(|silent| silent < SILENT_MIN)
}

/// Names the models that are ready now and would not be once the process has that duty, if any.
fn left_without_gpu(view: &View, member: Member, duty: Duty) -> Option<String> {
    let Member::Backend(id) = member else { return None };
    let mut then = view.clone();
    then.backends.get_mut(&id)?.duty = duty;
    let left = view.models.values().filter(|&model| model.is_ready(view) && !model.is_ready(&then));
    let left: Vec<_> = left.map(|model| model.spec.name.as_str()).collect();
    let (named, others) = left.split_at(left.len().min(NAMED_MAX));
    if named.is_empty() {
        return None;
    }
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    Some(format!(
        "{member} is the last backend that takes {}{others}: their requests are refused, as no_gpu or model_not_ready, until another one is ready",
        named.join(", ")
    ))
}

/// Requests the change of duty and waits for its confirmation.
pub(crate) async fn change(
    control: &ControlClient,
    member: Member,
    duty: Duty,
    within: Duration,
) -> Result<(), ControlError> {
    call(control, member, duty, fresh_operation_id(), within).await
}

async fn call(
    control: &ControlClient,
    member: Member,
    duty: Duty,
    operation: OperationId,
    within: Duration,
) -> Result<(), ControlError> {
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = pb::SetDutyRequest {
            member: Some(member.into()),
            duty: pb::Duty::from(duty).into(),
            operation_id: operation.to_string(),
        };
        async move { client.set_duty(request).await }
    };
    control.call(within, call).await.map(|_| ())
}

/// The process with that name or id. Ids take precedence, so that every process can be addressed, even beside one whose
/// name looks like an id, as earlier releases allowed.
pub(crate) fn find(view: &View, named: &str) -> Result<Member, String> {
    let schedulers =
        view.nodes.keys().map(|&id| (Member::Scheduler(id), format!("scheduler-{}", id.get()), id.to_string()));
    let backends = view.backends.iter().map(|(&id, b)| (Member::Backend(id), b.name.clone(), id.to_string()));
    let frontends = view.frontends.iter().map(|(&id, f)| (Member::Frontend(id), f.name.clone(), id.to_string()));
    let all: Vec<_> = schedulers.chain(backends).chain(frontends).collect();
    let with_id = all.iter().find(|(.., id)| id == named);
    let found: Vec<_> = match with_id {
        Some(member) => vec![member],
        None => all.iter().filter(|(_, name, _)| name == named).collect(),
    };
    match found.as_slice() {
        [(member, ..)] => Ok(*member),
        [] => {
            let known: Vec<_> = all.iter().map(|(_, name, _)| name.as_str()).collect();
            Err(format!("no process is named `{named}`; there are {}", known.join(", ")))
        }
        several => {
            let ids: Vec<_> = several.iter().map(|(_, _, id)| id.as_str()).collect();
            Err(format!("`{named}` names several processes; say which by id: {}", ids.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{BackendView, HolderView, ModelView, NodeView};
    use symphony_types::BackendId;

    use super::*;

    #[test]
    fn processes_are_found_by_name_or_id_and_doubtful_names_are_refused() {
        let backend = BackendView { name: "gpu-box".into(), ..BackendView::default() };
        let same = FrontendView { name: "gpu-box".into(), ..FrontendView::default() };
        let view = View {
            nodes: [(NodeId::new(2), NodeView::default())].into(),
            backends: [(BackendId::new(7), backend)].into(),
            frontends: [(FrontendId::new(1), same)].into(),
            ..View::default()
        };
        assert_eq!(find(&view, "n2"), Ok(Member::Scheduler(NodeId::new(2))));
        assert_eq!(find(&view, "scheduler-2"), Ok(Member::Scheduler(NodeId::new(2))));
        assert_eq!(find(&view, "b7"), Ok(Member::Backend(BackendId::new(7))));
        assert!(find(&view, "gpu-box").unwrap_err().contains("b7, f1"));
        let swapped = [(1, "f2"), (2, "f1")]
            .map(|(id, name)| (FrontendId::new(id), FrontendView { name: name.into(), ..FrontendView::default() }));
        let swapped = View { frontends: swapped.into(), ..View::default() };
        for id in [1, 2] {
            assert_eq!(find(&swapped, &format!("f{id}")), Ok(Member::Frontend(FrontendId::new(id))));
        }
        assert!(find(&view, "gpu").unwrap_err().contains("there are scheduler-2, gpu-box"));
    }

    #[test]
    fn a_replica_that_leads_the_control_group_may_not_be_stopped_yet() {
        let [one, other] = [1, 2].map(NodeId::new);
        let view = View { control_leader: Some(one), ..View::default() };
        assert!(rest(&view, Member::Scheduler(one)).unwrap().contains("the control group"));
        assert_eq!(rest(&view, Member::Scheduler(other)), None);
    }

    #[test]
    fn who_takes_the_quorum_or_the_last_frontend_is_told() {
        let member = |role| GroupMemberView {
            control_addr: String::new(),
            role,
            applied_index: 0,
            lag: 0,
            level: None,
            silent: None,
            stuck: None,
        };
        let roles = [(1, GroupRole::Leader), (2, GroupRole::Voter), (3, GroupRole::Voter), (4, GroupRole::Learner)];
        let nodes = roles.map(|(id, _)| (NodeId::new(id), NodeView { up: true, ..NodeView::default() }));
        let group = roles.map(|(id, role)| (NodeId::new(id), member(role)));
        let mut view = View { nodes: nodes.into(), group: group.into(), ..View::default() };
        let scheduler = |id| Member::Scheduler(NodeId::new(id));
        assert_eq!(loss(&view, scheduler(1), Duty::Draining), None, "two of three stay");
        view.nodes.get_mut(&NodeId::new(3)).unwrap().up = false;
        let warning = loss(&view, scheduler(1), Duty::Draining).unwrap();
        assert!(warning.contains("stay are 1 of 3, and a quorum is 2"), "{warning}");
        assert_eq!(loss(&view, scheduler(1), Duty::Cordoned), None, "it goes on voting");
        assert_eq!(loss(&view, scheduler(4), Duty::Draining), None, "it does not vote");
        view.nodes.get_mut(&NodeId::new(3)).unwrap().up = true;
        assert_eq!(loss(&view, scheduler(1), Duty::Draining), None);
        view.group.get_mut(&NodeId::new(3)).unwrap().stuck = Some(Nanos::from_millis(1));
        assert!(loss(&view, scheduler(1), Duty::Draining).is_some(), "it does not apply the log");
        let frontend = |id| Member::Frontend(FrontendId::new(id));
        view.frontends = [1, 2].map(|id| (FrontendId::new(id), FrontendView::default())).into();
        assert_eq!(loss(&view, frontend(1), Duty::Draining), None);
        view.frontends.get_mut(&FrontendId::new(2)).unwrap().duty = Duty::Cordoned;
        assert!(loss(&view, frontend(1), Duty::Draining).unwrap().contains("frontend f1 is the last one"));
        let other = view.frontends.get_mut(&FrontendId::new(2)).unwrap();
        (other.duty, other.silent) = (Duty::Serving, Some(SILENT_MIN));
        assert!(loss(&view, frontend(1), Duty::Draining).is_some(), "it does not answer");
        assert_eq!(loss(&view, frontend(1), Duty::Serving), None);
        view.frontends.get_mut(&FrontendId::new(1)).unwrap().duty = Duty::Cordoned;
        assert_eq!(loss(&view, frontend(1), Duty::Draining), None, "it took none before");
    }

    #[test]
    fn who_takes_the_last_gpu_from_models_is_told_which() {
        let mut view = crate::inspect::scene::view();
        let (&id, backend) = view.backends.iter().next().unwrap();
        let (boot, subcluster) = (backend.boot, backend.subcluster);
        view.models.values_mut().for_each(|model| {
            model.subcluster = subcluster;
            model.holders = [(id, HolderView { boot, state: Ok(()) })].into();
        });
        view.backends.retain(|&other, _| other == id);
        let names: Vec<_> = view.models.values().map(|model| model.spec.name.clone()).collect();
        let warning = left_without_gpu(&view, Member::Backend(id), Duty::Draining).unwrap();
        assert!(names.iter().all(|name| warning.contains(name)) && warning.contains("no_gpu"), "{warning}");
        assert_eq!(left_without_gpu(&view, Member::Backend(id), Duty::Serving), None);
        let spare = view.backends[&id].clone();
        view.backends.insert(BackendId::new(99), spare);
        assert!(
            left_without_gpu(&view, Member::Backend(id), Duty::Draining).is_some(),
            "the other one still loads them"
        );
        let loaded = |model: &mut ModelView| {
            model.holders.insert(BackendId::new(99), HolderView { boot, state: Ok(()) });
        };
        view.models.values_mut().for_each(loaded);
        assert_eq!(left_without_gpu(&view, Member::Backend(id), Duty::Draining), None, "another one has loaded them");
    }
}
