//! A Gaussian process: what a search that has tried some points expects of the others (Bayesian optimisation, as
//! Ribbon's). Matérn 5/2 kernel.

/// Length scales among which the likeliest is taken; each coordinate goes from 0 to 1.
const LENGTHS: [f64; 5] = [0.1, 0.2, 0.4, 0.8, 1.6];
/// Variance of what is measured over that of the values: goodputs are searched to a percent.
const NOISE: f64 = 1e-4;
/// The least pivot: equal points make the covariance singular but for rounding.
const PIVOT_MIN: f64 = 1e-12;

pub(super) struct GaussianProcess<'a> {
    points: &'a [Vec<f64>],
    length: f64,
    /// The Cholesky factor of the covariance of the points.
    lower: Vec<Vec<f64>>,
    /// The inverse of that covariance times the values.
    weights: Vec<f64>,
    /// Mean and deviation of the values, of which the process knows what is left.
    mean: f64,
    deviation: f64,
}

impl<'a> GaussianProcess<'a> {
    /// The process that has these values at these points.
    pub(super) fn fit(points: &'a [Vec<f64>], values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt().max(1e-9);
        let scaled: Vec<f64> = values.iter().map(|value| (value - mean) / deviation).collect();
        let with_length = |length: f64| {
            let lower = cholesky(covariance(points, length));
            let weights = backward(&lower, forward(&lower, &scaled));
            let fit: f64 = scaled.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
            let volume: f64 = lower.iter().enumerate().map(|(at, row)| row[at].ln()).sum();
            (-0.5 * fit - volume, Self { points, length, lower, weights, mean, deviation })
        };
        let mut best = with_length(LENGTHS[0]);
        for &length in &LENGTHS[1..] {
            let next = with_length(length);
            if next.0 > best.0 {
                best = next;
            }
        }
        best.1
    }

    /// The expected value at a point, and its deviation.
    fn at(&self, point: &[f64]) -> (f64, f64) {
        let near: Vec<f64> = self.points.iter().map(|known| kernel(known, point, self.length)).collect();
        let expected: f64 = near.iter().zip(&self.weights).map(|(near, weight)| near * weight).sum();
        let explained: f64 = forward(&self.lower, &near).iter().map(|part| part * part).sum();
        (self.mean + self.deviation * expected, self.deviation * (1.0 - explained).max(0.0).sqrt())
    }

    /// By how much the value at a point is expected to be above `best`; what is below counts as nothing.
    pub(super) fn expected_improvement(&self, point: &[f64], best: f64) -> f64 {
        let (expected, deviation) = self.at(point);
        let over = expected - best;
        if deviation <= 0.0 {
            return over.max(0.0);
        }
        let z = over / deviation;
        over * below(z) + deviation * density(z)
    }
}

/// Matérn 5/2.
fn kernel(one: &[f64], other: &[f64], length: f64) -> f64 {
    let squares: f64 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
    let far = (5.0 * squares).sqrt() / length;
    (1.0 + far + far * far / 3.0) * (-far).exp()
}

fn covariance(points: &[Vec<f64>], length: f64) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> =
        points.iter().map(|one| points.iter().map(|other| kernel(one, other, length)).collect()).collect();
    for (at, row) in rows.iter_mut().enumerate() {
        row[at] += NOISE;
    }
    rows
}

/// The lower triangle whose product with its transpose is the matrix; entries above the diagonal are not read.
fn cholesky(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for row in 0..matrix.len() {
        for column in 0..=row {
            let dot: f64 = (0..column).map(|at| matrix[row][at] * matrix[column][at]).sum();
            let left = matrix[row][column] - dot;
            matrix[row][column] =
                if row == column { left.max(PIVOT_MIN).sqrt() } else { left / matrix[column][column] };
        }
    }
    matrix
}

/// Solves `lower · x = values`.
fn forward(lower: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(values.len());
    for (row, value) in lower.iter().zip(values) {
        let dot: f64 = row.iter().zip(&solved).map(|(factor, known)| factor * known).sum();
        let pivot = row[solved.len()];
        solved.push((value - dot) / pivot);
    }
    solved
}

/// Solves `lowerᵀ · x = values`.
fn backward(lower: &[Vec<f64>], mut values: Vec<f64>) -> Vec<f64> {
    for (at, row) in lower.iter().enumerate().rev() {
        values[at] /= row[at];
        let solved = values[at];
        for (value, factor) in values[..at].iter_mut().zip(row) {
            *value -= solved * factor;
        }
    }
    values
}

/// The density of the standard normal distribution.
fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The probability that a standard normal value is below `z`, within 1e-7 (Abramowitz and Stegun, 26.2.17).
fn below(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let tail = density(z) * t * FACTORS.iter().fold(0.0, |sum, factor| sum * t + factor);
    if z < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_through_what_is_known_and_knows_nothing_far_away() {
        let points: Vec<Vec<f64>> = [0.0, 0.1, 0.3].iter().map(|&x| vec![x, 0.0]).collect();
        let process = GaussianProcess::fit(&points, &[10.0, 12.0, 7.0]);
        for (point, value) in points.iter().zip([10.0, 12.0, 7.0]) {
            let (expected, deviation) = process.at(point);
            assert!((expected - value).abs() < 0.02 && deviation < 0.1, "{expected} {deviation}");
        }
        let (expected, deviation) = process.at(&[100.0, 100.0]);
        assert!((expected - 29.0 / 3.0).abs() < 1e-6, "the mean: {expected}");
        assert!((deviation - process.deviation).abs() < 1e-6, "{deviation}");
        assert!(process.expected_improvement(&[0.12, 0.0], 12.0) > process.expected_improvement(&[0.3, 0.0], 12.0));
    }

    #[test]
    fn the_factor_and_both_solutions_are_those_of_a_small_matrix() {
        let lower = cholesky(vec![vec![4.0, 2.0], vec![2.0, 3.0]]);
        assert!((lower[0][0] - 2.0).abs() < 1e-12 && (lower[1][0] - 1.0).abs() < 1e-12);
        assert!((lower[1][1] - 2.0_f64.sqrt()).abs() < 1e-12);
        // 4 x + 2 y = 8 and 2 x + 3 y = 8.
        let solved = backward(&lower, forward(&lower, &[8.0, 8.0]));
        assert!((solved[0] - 1.0).abs() < 1e-12 && (solved[1] - 2.0).abs() < 1e-12, "{solved:?}");
    }

    #[test]
    fn the_normal_distribution_is_as_in_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.96, 0.024_997_895), (3.0, 0.998_650_102)] {
            assert!((below(z) - expected).abs() < 1e-7, "{z}: {}", below(z));
        }
        assert!((density(0.0) - 0.398_942_280).abs() < 1e-9);
    }
}
