//! The shape of a pipeline: its decomposition into stages, in series and in parallel.
//!
//! A source is put before the stages that have no edge into them, and a sink behind those that have none out of them.
//! Trees and fork-joins then reduce to one edge by two rules: two edges between the same places become one (parallel),
//! and a stage with one edge into it and one out of it becomes part of an edge (series). A graph that does not reduce
//! is not series-parallel (Valdes, Tarjan and Lawler, 1982), and no dynamic program over budgets is known for it.

/// A part of the shape; its operands come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Stage(usize),
    /// One after the other: they share a budget.
    Series(usize, usize),
    /// Beside each other: each has the whole budget.
    Parallel(usize, usize),
}

/// All parts, operands first; the last one is the whole pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    parts: Vec<Part>,
}

/// What lies between two places; nothing for an edge as given.
struct Span {
    from: usize,
    to: usize,
    part: Option<usize>,
}

impl Shape {
    /// Decomposes a DAG of at least one stage.
    ///
    /// # Errors
    /// The stages that are left where neither rule applies any more.
    pub(crate) fn of(stages: usize, edges: &[(usize, usize)]) -> Result<Self, Vec<usize>> {
        let (source, sink) = (stages, stages + 1);
        let mut spans: Vec<_> = edges.iter().map(|&(from, to)| Span { from, to, part: None }).collect();
        for stage in 0..stages {
            if edges.iter().all(|&(_, to)| to != stage) {
                spans.push(Span { from: source, to: stage, part: None });
            }
            if edges.iter().all(|&(from, _)| from != stage) {
                spans.push(Span { from: stage, to: sink, part: None });
            }
        }
        let mut shape = Self { parts: Vec::new() };
        let mut left: Vec<usize> = (0..stages).collect();
        while shape.reduce_parallel(&mut spans) || shape.reduce_series(&mut spans, &mut left) {}
        if left.is_empty() && spans.len() == 1 { Ok(shape) } else { Err(left) }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn push(&mut self, part: Part) -> usize {
        self.parts.push(part);
        self.parts.len() - 1
    }

    /// Joins two spans between the same places, if there are two.
    fn reduce_parallel(&mut self, spans: &mut Vec<Span>) -> bool {
        let twin = |at: usize| {
            let same = |other: &Span| other.from == spans[at].from && other.to == spans[at].to;
            Some((at, at + 1 + spans[at + 1..].iter().position(same)?))
        };
        let Some((first, second)) = (0..spans.len()).find_map(twin) else { return false };
        let other = spans.remove(second).part;
        spans[first].part = match (spans[first].part, other) {
            (Some(one), Some(two)) => Some(self.push(Part::Parallel(one, two))),
            // Beside nothing, a budget is not shared.
            (one, two) => one.or(two),
        };
        true
    }

    /// Makes a stage part of the only span through it, if there is such a stage.
    fn reduce_series(&mut self, spans: &mut Vec<Span>, left: &mut Vec<usize>) -> bool {
        let only = |at: &dyn Fn(&Span) -> usize, stage: usize| {
            let mut found = spans.iter().enumerate().filter(|(_, span)| at(span) == stage).map(|(index, _)| index);
            found.next().filter(|_| found.next().is_none())
        };
        let through = |(at, &stage): (usize, &usize)| {
            Some((at, stage, only(&|span: &Span| span.to, stage)?, only(&|span: &Span| span.from, stage)?))
        };
        let Some((at, stage, into, out)) = left.iter().enumerate().find_map(through) else { return false };
        let (before, after) = (spans[into].part, spans[out].part);
        let mut part = self.push(Part::Stage(stage));
        if let Some(before) = before {
            part = self.push(Part::Series(before, part));
        }
        if let Some(after) = after {
            part = self.push(Part::Series(part, after));
        }
        spans[into] = Span { from: spans[into].from, to: spans[out].to, part: Some(part) };
        spans.remove(out);
        left.remove(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(stages: usize, edges: &[(usize, usize)]) -> String {
        let shape = Shape::of(stages, edges).unwrap();
        words(&shape, shape.parts.len() - 1)
    }

    fn words(shape: &Shape, part: usize) -> String {
        match shape.parts[part] {
            Part::Stage(stage) => stage.to_string(),
            Part::Series(one, two) => format!("({} then {})", words(shape, one), words(shape, two)),
            Part::Parallel(one, two) => format!("({} beside {})", words(shape, one), words(shape, two)),
        }
    }

    #[test]
    fn chains_trees_and_fork_joins_decompose() {
        assert_eq!(shape(1, &[]), "0");
        assert_eq!(shape(3, &[(0, 1), (1, 2)]), "((0 then 1) then 2)");
        assert_eq!(shape(3, &[(0, 1), (0, 2)]), "(0 then (1 beside 2))");
        assert_eq!(shape(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]), "((0 then (1 beside 2)) then 3)");
        // An edge past a stage costs nothing.
        assert_eq!(shape(3, &[(0, 1), (1, 2), (0, 2)]), "((0 then 1) then 2)");
    }

    #[test]
    fn what_is_neither_is_named() {
        // The join 3 and the leaf 4 share the stage 2.
        let bridge = [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4)];
        assert_eq!(Shape::of(5, &bridge).unwrap_err(), [0, 2, 3]);
        // Every stage of two feeds both of two.
        let crossed = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4)];
        assert_eq!(Shape::of(5, &crossed).unwrap_err(), [0, 1, 2, 3, 4]);
    }
}
