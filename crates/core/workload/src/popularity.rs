//! How the total rate is divided among the models.

/// The law of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// In proportion to each model's `weight`.
    Weights,
    /// Equal shares.
    Uniform,
    /// Zipf: the share of the i-th model in the order of the file is proportional to 1/i^s.
    Zipf(f64),
}

impl Popularity {
    /// Shares with sum one, for models with these weights. `None` if all are zero.
    pub(crate) fn shares(self, weights: &[f64]) -> Option<Vec<f64>> {
        let raw: Vec<f64> = match self {
            Self::Weights => weights.to_vec(),
            Self::Uniform => vec![1.0; weights.len()],
            Self::Zipf(s) => (1..=weights.len()).map(|rank| (rank as f64).powf(-s)).collect(),
        };
        let total: f64 = raw.iter().sum();
        (total.is_finite() && total > 0.0).then(|| raw.iter().map(|weight| weight / total).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_follow_their_law() {
        let close = |a: Vec<f64>, b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-12);
        assert!(close(Popularity::Weights.shares(&[1.0, 3.0]).unwrap(), &[0.25, 0.75]));
        assert!(close(Popularity::Uniform.shares(&[1.0, 3.0]).unwrap(), &[0.5, 0.5]));
        assert!(close(Popularity::Zipf(1.0).shares(&[1.0, 1.0]).unwrap(), &[2.0 / 3.0, 1.0 / 3.0]));
        assert_eq!(Popularity::Weights.shares(&[0.0, 0.0]), None);
    }
}
