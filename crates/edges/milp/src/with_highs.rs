//! HiGHS itself.

use std::ops::Bound;

use highs::{HighsModelStatus, HighsSolutionStatus, RowProblem, Sense};
use symphony_partitioner::milp::{Column, Milp};

use crate::{Divided, Limits, NoAnswer};

/// The best division within the limits, from `start` if one is given.
///
/// # Errors
/// If there is none, none was found, or the solver refuses the program.
pub fn divide(milp: &Milp, start: Option<&[usize]>, limits: &Limits) -> Result<Divided, NoAnswer> {
    let mut program = RowProblem::default();
    let columns: Vec<_> = milp
        .columns
        .iter()
        .map(|&Column { cost, lower, upper, integer }| {
            let bounds = (bound(lower), bound(upper));
            if integer { program.add_integer_column(cost, bounds) } else { program.add_column(cost, bounds) }
        })
        .collect();
    for row in &milp.rows {
        let terms = row.terms.iter().map(|&(column, factor)| (columns[column], factor));
        program.add_row((bound(row.lower), bound(row.upper)), terms);
    }
    let failed = |what: &str, status: &dyn std::fmt::Debug| NoAnswer::Failed(format!("{what}: {status:?}"));
    let mut model =
        program.try_optimise(Sense::Minimise).map_err(|status| failed("the program was refused", &status))?;
    model.make_quiet();
    model.set_option("time_limit", limits.time_s);
    model.set_option("mip_rel_gap", limits.gap);
    model.set_option("threads", limits.threads as i32);
    model.set_option("random_seed", limits.seed as i32);
    if let Some(division) = start {
        let values = milp.start(division);
        model
            .try_set_solution(Some(&values), None, None, None)
            .map_err(|status| failed("the start was refused", &status))?;
    }
    let solved = model.try_solve().map_err(|status| failed("the search failed", &status))?;
    let status = solved.status();
    if status == HighsModelStatus::Infeasible {
        return Err(NoAnswer::Infeasible);
    }
    if solved.primal_solution_status() != HighsSolutionStatus::Feasible {
        return Err(NoAnswer::NoneFound(format!("{status:?}")));
    }
    let division = milp.division(solved.get_solution().columns()).map_err(NoAnswer::Failed)?;
    let objective = solved.objective_value();
    let bound = solved.double_info_value(c"mip_dual_bound").map_err(|status| failed("it names no bound", &status))?;
    Ok(Divided { division, objective, bound, proven: status == HighsModelStatus::Optimal })
}

fn bound(value: f64) -> Bound<f64> {
    if value.is_finite() { Bound::Included(value) } else { Bound::Unbounded }
}
