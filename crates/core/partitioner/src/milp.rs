//! The problem as a mixed-integer linear program, equations 4 to 11, for an external solver.

use std::collections::BTreeMap;

use crate::change::homes;
use crate::instance::{Instance, NOWHERE};
use crate::partition_plan::PartitionPlan;
use crate::problem::Problem;
use crate::solve::left_of;
use crate::unsolved::Unsolved;

/// The weight of a part's overload of its own GPUs: above any objective, so that it has priority, as in the search.
const OVERLOAD_WEIGHT: f64 = 1e3;
/// The tolerated distance of a solver's x_ij from 0 or 1 (equation 10).
const INTEGRAL_WITHIN: f64 = 1e-4;

/// A program: minimise Σ cost·x with every column and every row within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Milp {
    /// Columns, x_ij by model and part first.
    pub columns: Vec<Column>,
    /// Constraints: sums of columns with their bounds.
    pub rows: Vec<Row>,
    models: usize,
    parts: usize,
    /// Positions within the groups of interchangeable parts, in the order in which models may enter them.
    alike: Vec<Vec<usize>>,
    /// Models in the order that breaks the symmetry of interchangeable parts.
    order: Vec<usize>,
}

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Its coefficient in the objective.
    pub cost: f64,
    /// Its least value.
    pub lower: f64,
    /// Its largest value.
    pub upper: f64,
    /// Whether it is an integer.
    pub integer: bool,
}

/// A constraint.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The least value of the sum.
    pub lower: f64,
    /// Its largest value.
    pub upper: f64,
    /// The sum: columns and factors.
    pub terms: Vec<(usize, f64)>,
}

impl Milp {
    /// The program of a problem. Amounts are relative to the average, as in [`Balance`](crate::Balance), so the optimal
    /// value is the objective there.
    ///
    /// Some parts may be interchangeable. Without a plan in force the t-th largest model is then limited to the first t
    /// of them, which loses no solution up to renaming.
    ///
    /// # Errors
    /// [`Unsolved::Bad`] if the problem is invalid.
    pub fn new(problem: &Problem, previous: Option<&PartitionPlan>) -> Result<Self, Unsolved> {
        problem.check()?;
        let of = Instance::new(problem);
        let (models, parts) = (of.models, of.parts);
        let home = previous.map_or_else(|| vec![NOWHERE; models], |plan| homes(problem, plan));
        let mut order: Vec<usize> = (0..models).collect();
        let size =
            |model: usize| of.rate[model] * of.rate_scale[0] + of.memory_weight * of.memory[model] * of.memory_scale[0];
        order.sort_by(|&a, &b| size(b).total_cmp(&size(a)).then(a.cmp(&b)));
        let alike = if home.iter().all(|&home| home == NOWHERE) { alike(problem, &of) } else { Vec::new() };
        let mut milp = Self { columns: Vec::new(), rows: Vec::new(), models, parts, alike, order };
        milp.add_columns(&of);
        milp.add_rows(&of, problem, &home, left_of(problem, spent(problem, previous)));
        Ok(milp)
    }

    fn x(&self, model: usize, part: usize) -> usize {
        model * self.parts + part
    }

    fn deviations(&self) -> (usize, usize) {
        (self.models * self.parts, self.models * self.parts + 1)
    }

    fn add_columns(&mut self, of: &Instance) {
        let binary = |model: usize, part: usize| {
            let upper = if of.allows(model, part) { 1.0 } else { 0.0 };
            Column { cost: 0.0, lower: 0.0, upper, integer: true }
        };
        let parts = self.parts;
        let pairs = (0..self.models).flat_map(|model| (0..parts).map(move |part| (model, part)));
        self.columns = pairs.map(|(model, part)| binary(model, part)).collect();
        for (rank, &model) in self.order.iter().enumerate() {
            for group in &self.alike {
                for &part in group.iter().skip(rank + 1) {
                    self.columns[model * self.parts + part].upper = 0.0;
                }
            }
        }
        let deviation = |cost: f64| Column { cost, lower: 0.0, upper: f64::INFINITY, integer: false };
        self.columns.push(deviation(1.0));
        self.columns.push(deviation(of.memory_weight));
    }

    fn add_rows(&mut self, of: &Instance, problem: &Problem, home: &[u32], left: f64) {
        let (models, parts) = (self.models, self.parts);
        let x = |model: usize, part: usize| model * parts + part;
        let (rate_deviation, memory_deviation) = self.deviations();
        let mut rows = Vec::new();
        let at_most = |upper: f64, terms: Vec<(usize, f64)>| Row { lower: f64::NEG_INFINITY, upper, terms };
        // (9): one part each.
        for model in 0..models {
            let terms = (0..parts).map(|part| (x(model, part), 1.0)).collect();
            rows.push(Row { lower: 1.0, upper: 1.0, terms });
        }
        for part in 0..parts {
            let sum = |amounts: &[f64], scale: f64| -> Vec<(usize, f64)> {
                (0..models).map(|model| (x(model, part), amounts[model] * scale)).collect()
            };
            // (5)
            if of.rate_max[part].is_finite() {
                rows.push(at_most(1.0, sum(&of.rate, 1.0 / of.rate_max[part])));
            }
            // (6), with a column for the largest dynamic memory of each kind.
            for &(kind, max) in &of.memory_max[part] {
                let largest = self.columns.len();
                self.columns.push(Column { cost: 0.0, lower: 0.0, upper: f64::INFINITY, integer: false });
                let scale = 1.0 / max.max(1.0);
                let mut terms = sum(&of.held[kind], scale);
                terms.push((largest, 1.0));
                rows.push(at_most(max * scale, terms));
                for model in (0..models).filter(|&model| of.dynamic[kind][model] > 0.0) {
                    let dynamic = of.dynamic[kind][model] * scale;
                    rows.push(at_most(0.0, vec![(x(model, part), dynamic), (largest, -1.0)]));
                }
            }
            // (7) and (8): above and below the target.
            for (amounts, scale, deviation) in
                [(&of.rate, of.rate_scale[part], rate_deviation), (&of.memory, of.memory_scale[part], memory_deviation)]
            {
                if scale > 0.0 {
                    let mut above = sum(amounts, scale);
                    let mut below = above.clone();
                    above.push((deviation, -1.0));
                    below.push((deviation, 1.0));
                    rows.push(at_most(1.0, above));
                    rows.push(Row { lower: 1.0, upper: f64::INFINITY, terms: below });
                }
            }
            // The load of a part's own GPUs.
            if let Some(load) = &of.load[part] {
                let over = self.columns.len();
                self.columns.push(Column { cost: OVERLOAD_WEIGHT, lower: 0.0, upper: f64::INFINITY, integer: false });
                let mut terms: Vec<_> = sum(load, 1.0).into_iter().filter(|(_, factor)| factor.is_finite()).collect();
                terms.push((over, -1.0));
                rows.push(at_most(1.0, terms));
            }
        }
        // (11): a model that is not at home has moved.
        if left.is_finite() && problem.disruption_max.is_some() {
            let at_home = (0..models).filter(|&model| home[model] != NOWHERE);
            let terms: Vec<_> =
                at_home.map(|model| (x(model, home[model] as usize), of.cost[model])).filter(|t| t.1 > 0.0).collect();
            let all: f64 = terms.iter().map(|(_, cost)| cost).sum();
            rows.push(Row { lower: all - left, upper: f64::INFINITY, terms });
        }
        self.rows = rows;
    }

    /// Values of all columns for a division, as a solver's start. Interchangeable parts are renamed to satisfy the
    /// symmetry constraints.
    #[must_use]
    pub fn start(&self, division: &[usize]) -> Vec<f64> {
        let mut names: Vec<usize> = (0..self.parts).collect();
        for group in &self.alike {
            let mut free = group.iter();
            let mut given: BTreeMap<usize, usize> = BTreeMap::new();
            for &model in &self.order {
                let part = division[model];
                if group.contains(&part) {
                    given.entry(part).or_insert_with(|| *free.next().unwrap_or(&part));
                }
            }
            for &part in group {
                given.entry(part).or_insert_with(|| *free.next().unwrap_or(&part));
            }
            given.into_iter().for_each(|(part, name)| names[part] = name);
        }
        let mut values = vec![0.0; self.columns.len()];
        for (model, &part) in division.iter().enumerate() {
            values[self.x(model, names[part])] = 1.0;
        }
        // The other columns have the least value that the rows allow: each such row has one of them with coefficient
        // ±1.
        let integers = self.models * self.parts;
        for row in &self.rows {
            let Some(&(column, factor)) = row.terms.iter().find(|&&(column, _)| column >= integers) else { continue };
            let sum: f64 = row.terms.iter().filter(|term| term.0 < integers).map(|&(c, f)| f * values[c]).sum();
            let least = if factor < 0.0 { sum - row.upper } else { row.lower - sum };
            if least.is_finite() {
                values[column] = f64::max(values[column], least);
            }
        }
        values
    }

    /// The division in a solver's values.
    ///
    /// # Errors
    /// If a model has not exactly one part (equations 9 and 10); the text names it.
    pub fn division(&self, values: &[f64]) -> Result<Vec<usize>, String> {
        if values.len() != self.columns.len() {
            return Err(format!("the solver returned {} values for {} columns", values.len(), self.columns.len()));
        }
        let part_of = |model: usize| {
            let row = &values[self.x(model, 0)..][..self.parts];
            let whole = row.iter().all(|&x| x.abs() < INTEGRAL_WITHIN || (x - 1.0).abs() < INTEGRAL_WITHIN);
            let chosen: Vec<usize> = (0..self.parts).filter(|&part| row[part] > 0.5).collect();
            match chosen[..] {
                [part] if whole => Ok(part),
                _ => Err(format!(
                    "the solver gives model {model} the parts {row:?}; expected one of them to be 1, the others 0"
                )),
            }
        };
        (0..self.models).map(part_of).collect()
    }

    /// The cost of these column values, and their largest violation of a row, bound or integrality.
    #[must_use]
    pub fn judge(&self, values: &[f64]) -> (f64, f64) {
        let beyond = |value: f64, lower: f64, upper: f64| (lower - value).max(value - upper).max(0.0);
        let rows = self.rows.iter().map(|row| {
            let sum: f64 = row.terms.iter().map(|&(column, factor)| factor * values[column]).sum();
            beyond(sum, row.lower, row.upper)
        });
        let columns = self.columns.iter().zip(values).map(|(column, &value)| {
            let split = if column.integer { (value - value.round()).abs() } else { 0.0 };
            beyond(value, column.lower, column.upper).max(split)
        });
        let cost = self.columns.iter().zip(values).map(|(column, value)| column.cost * value).sum();
        (cost, rows.chain(columns).fold(0.0, f64::max))
    }
}

/// What the plan in force has spent of C_max for this problem.
fn spent(problem: &Problem, previous: Option<&PartitionPlan>) -> f64 {
    previous.filter(|plan| plan.problem == problem.fingerprint()).map_or(0.0, |plan| plan.disruption_spent.max(0.0))
}

/// Groups of parts that differ only in their names.
fn alike(problem: &Problem, of: &Instance) -> Vec<Vec<usize>> {
    let same = |a: usize, b: usize| {
        let (one, other) = (&problem.parts[a], &problem.parts[b]);
        one.rate_max_rps == other.rate_max_rps
            && one.share == other.share
            && one.kinds == other.kinds
            && of.load[a] == of.load[b]
            && (0..of.models).all(|model| of.allows(model, a) == of.allows(model, b))
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for part in 0..of.parts {
        match groups.iter_mut().find(|group| same(group[0], part)) {
            Some(group) => group.push(part),
            None => groups.push(vec![part]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}
