//! Explanations as text, for both `symphony explain` and `symphony sim`.

use std::fmt;

use crate::explanation::{BatchStory, DropStory, Explanation, RivalStory, ShedStory};

/// A point in time relative to the decision.
struct At(f64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.3} ms", self.0)
    }
}

pub(crate) fn plural(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn of_kind(name: &str, kind: Option<&str>) -> String {
    kind.map_or_else(|| name.to_owned(), |kind| format!("{name} ({kind})"))
}

pub(crate) fn line(f: &mut fmt::Formatter<'_>, label: &str, text: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "  {label:<10}{text}")
}

impl fmt::Display for Explanation {
    /// Several lines, each terminated; times are relative to the decision.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.request, self.items) {
            (Some(request), Some(items)) => {
                write!(f, "request {request} ({}) for {}: ", plural(items, "item"), self.model)?;
            }
            _ => write!(f, "batch for {}: ", self.model)?,
        }
        let outcome = match self.outcome {
            "in_time" => "ran in time",
            "late" => "ran too late",
            "running" => "sent; nothing was heard of it yet",
            "refused" => "its backend refused the plan, and it waited again",
            "lost" => "lost with its GPU or stopped, and it waited again",
            other => other,
        };
        match &self.dropped {
            Some(dropped) => writeln!(f, "{outcome}, {}", dropped.reason)?,
            None => writeln!(f, "{outcome}")?,
        }
        match (self.decided_ago_ms, self.decided_at_s) {
            (Some(ago_ms), _) => {
                line(f, "decided", format_args!("{:.3} s ago; times below count from then", ago_ms / 1e3))?;
            }
            (None, Some(at_s)) => line(f, "decided", format_args!("at {at_s:.6} s; times below count from then"))?,
            (None, None) => {}
        }
        if let Some(policy) = &self.policy {
            line(f, "policy", format_args!("{policy}"))?;
        }
        if let Some(batch) = &self.batch {
            write_batch(f, batch)?;
        }
        if let Some(dropped) = &self.dropped {
            write_drop(f, dropped)?;
        }
        Ok(())
    }
}

fn write_batch(f: &mut fmt::Formatter<'_>, batch: &BatchStory) -> fmt::Result {
    let (items, requests) = (plural(batch.items, "item"), plural(batch.requests, "request"));
    match (batch.target, batch.left) {
        (Some(target), Some(left)) => line(
            f,
            "batch",
            format_args!("#{}: {items} of {requests}; aimed at {target}, {left} left waiting", batch.number),
        )?,
        _ => line(f, "batch", format_args!("#{}: {items} of {requests}", batch.number))?,
    }
    if let Some(skipped) = batch.skipped.filter(|&skipped| skipped > 0) {
        line(
            f,
            "skipped",
            format_args!("{}, left to faster GPUs: too late for this kind", plural(skipped, "more urgent request")),
        )?;
    }
    if let Some(waited) = batch.head_waited_ms {
        line(f, "waited", format_args!("{waited:.3} ms, its most urgent request"))?;
    }
    write_window(f, batch)?;
    write_why(f, batch)?;
    if let Some(rivals) = &batch.rivals {
        write_rivals(f, rivals)?;
    }
    if let Some(inputs) = batch.inputs {
        line(f, "inputs", format_args!("given {:.3} ms to come, as {}", inputs.within_ms, inputs.by))?;
    }
    let planned = &batch.planned;
    line(
        f,
        "predicted",
        format_args!(
            "start {}, {:.3} ms of execution, end {}; must end by {}",
            At(planned.start_ms),
            planned.execution_ms,
            At(planned.end_ms),
            At(planned.must_end_by_ms)
        ),
    )?;
    write_actual(f, batch)
}

fn write_window(f: &mut fmt::Formatter<'_>, batch: &BatchStory) -> fmt::Result {
    let window = &batch.window;
    let latest = At(window.latest_ms);
    match (window.frontrun_ms, batch.target) {
        (Some(frontrun), _) => {
            let guard = match window.guard_ms {
                Some(guard) if guard > 0.0 => format!("; due {guard:.3} ms before it, its guard"),
                _ => String::new(),
            };
            let from = At(frontrun);
            line(
                f,
                "window",
                format_args!("from {from} (frontrun: no further arrival could join{guard}) to {latest} (latest)"),
            )
        }
        (None, Some(_)) => {
            line(f, "window", format_args!("until {latest} (latest); the batch was full, nothing could join"))
        }
        (None, None) => line(f, "window", format_args!("until {latest} (latest)")),
    }
}

fn write_actual(f: &mut fmt::Formatter<'_>, batch: &BatchStory) -> fmt::Result {
    let (planned, Some(actual)) = (&batch.planned, &batch.actual) else { return Ok(()) };
    let off = actual.start_late_ms.abs();
    let start = match (actual.start_late_ms < 0.0, actual.at_latest) {
        (true, true) => format!("at least {off:.3} ms early"),
        (true, false) => format!("{off:.3} ms early"),
        (false, true) => "on time or early".to_owned(),
        (false, false) => format!("{off:.3} ms late"),
    };
    let latest = if actual.at_latest { " at the latest" } else { "" };
    let longer = actual.execution_ms - planned.execution_ms;
    let than = if longer < 0.0 { "less" } else { "more" };
    line(
        f,
        "actual",
        format_args!(
            "start {start}, {:.3} ms of execution ({:.3} ms {than} than predicted), end {}{latest}",
            actual.execution_ms,
            longer.abs(),
            At(actual.end_ms)
        ),
    )?;
    if let Some(deadline) = batch.deadline_ms {
        let spare = deadline - actual.end_ms;
        let (bound, how) =
            if spare < 0.0 { ("at most ", "too late") } else { ("at least ", "left to send the answer") };
        let bound = if actual.at_latest { bound } else { "" };
        line(f, "deadline", format_args!("{}: {bound}{:.3} ms {how}", At(deadline), spare.abs()))?;
    }
    Ok(())
}

fn write_why(f: &mut fmt::Formatter<'_>, batch: &BatchStory) -> fmt::Result {
    let gpu = &batch.gpu;
    let why_now = match gpu.matched {
        "at_its_start" if batch.window.due_ms().is_some_and(|due| batch.planned.start_ms < due) => {
            "its trigger did not wait for the window, and it found an idle GPU"
        }
        "at_its_start" => "it was due, and found an idle GPU",
        "first_in_line" => "it had been due and waited; the GPU came free and took the first in line",
        _ => batch.rule.unwrap_or("the policy does not say"),
    };
    line(f, "why now", format_args!("{why_now}"))?;
    let name = of_kind(&gpu.name, gpu.kind.as_deref());
    if gpu.matched == "untold" {
        return line(f, "gpu", format_args!("{name}"));
    }
    let which = if gpu.choice == "lowest_id" { "lowest-numbered" } else { "longest free" };
    let more = if gpu.others_idle_or_more { " or more" } else { "" };
    match gpu.others_idle {
        0 => line(f, "gpu", format_args!("{name}, the only one free by then")),
        others => line(f, "gpu", format_args!("{name}, the {which} of {}{more} free by then", others + 1)),
    }
}

fn write_rivals(f: &mut fmt::Formatter<'_>, rivals: &RivalStory) -> fmt::Result {
    match (&rivals.next_model, rivals.next_latest_ms) {
        (Some(model), Some(latest)) => line(
            f,
            "rivals",
            format_args!(
                "{} waited for a GPU; next is {model}, until {}",
                plural(rivals.count, "other model"),
                At(latest)
            ),
        ),
        _ => line(f, "rivals", format_args!("no other model waited for a GPU")),
    }
}

fn write_shed(f: &mut fmt::Formatter<'_>, dropped: &DropStory) -> fmt::Result {
    let Some(ShedStory { pressure, value, share }) = dropped.shed else { return Ok(()) };
    line(
        f,
        "cause",
        format_args!(
            "overload: models whose requests are worth 1 give up {:.1} % of them; this one's are worth {value}, so {:.1} %",
            pressure * 100.0,
            share * 100.0
        ),
    )
}

fn write_drop(f: &mut fmt::Formatter<'_>, dropped: &DropStory) -> fmt::Result {
    let &DropStory { waited_ms: Some(waited), must_end_by_ms: Some(due), waiting: Some(waiting), .. } = dropped else {
        let rule = match dropped.reason {
            "queue_full" => "the queue was at its limit",
            _ => dropped.rule.unwrap_or("the policy does not say"),
        };
        return line(f, "cause", format_args!("{rule}; its deadline was {}", At(dropped.deadline_ms)));
    };
    line(f, "waited", format_args!("{waited:.3} ms, in a queue of {}", plural(waiting, "request")))?;
    let deadline = At(dropped.deadline_ms);
    line(f, "deadline", format_args!("{deadline}; so it had to end on a GPU by {}", At(due)))?;
    match (dropped.reason, dropped.batch, dropped.batch_end_ms) {
        ("queue_full", ..) => line(f, "cause", format_args!("the queue was at its limit"))?,
        ("no_gpu", ..) => line(
            f,
            "cause",
            format_args!("no GPU took the model: none was linked, none answered, or all were drained"),
        )?,
        ("shed", ..) => write_shed(f, dropped)?,
        ("protect_batch", Some(batch), Some(end)) => {
            let aimed = dropped.target.map_or_else(String::new, |target| format!(" (aimed at {target})"));
            line(
                f,
                "cause",
                format_args!(
                    "those behind it make a batch of {batch}{aimed}; with it such a batch ends {} {}, {:.3} ms too late",
                    At(end),
                    of_kind("at best", dropped.kind.as_deref()),
                    end - due
                ),
            )?;
        }
        (_, _, _) => {}
    }
    match (dropped.reason, dropped.alone_end_ms) {
        ("queue_expired" | "slo_unreachable", Some(alone)) => line(
            f,
            "cause",
            format_args!("even alone on an idle GPU it would end {}, {:.3} ms too late", At(alone), alone - due),
        ),
        ("protect_batch", Some(alone)) => line(
            f,
            "alone",
            format_args!("it would end {} on an idle GPU, and shrink the batch of all others", At(alone)),
        ),
        _ => Ok(()),
    }
}
