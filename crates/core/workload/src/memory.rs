//! Checks that the models of a scenario fit the memory of its GPUs: all of them on each, as in a sub-cluster.

use crate::check::Check;
use crate::error::ScenarioError;
use crate::profile_toml::memory_from_toml;
use crate::text::ScenarioText;

const MIB: f64 = 1_048_576.0;

impl Check<'_> {
    /// Only files of `symphony profile` contain memory needs; other models count as zero.
    pub(crate) fn memory(&self, text: &ScenarioText) -> Result<(), ScenarioError> {
        for (position, gpu) in text.gpu.iter().enumerate() {
            let Some(memory_mb) = gpu.memory_mb else { continue };
            let (mut loaded, mut largest) = (0_u64, 0);
            for (at, model) in text.model.iter().enumerate() {
                let Some(file) = &model.profile else { continue };
                let measured = self.csv(&format!("model.{at}.profile"), file)?;
                let (fixed, dynamic) = memory_from_toml(&measured, &gpu.kind);
                loaded = loaded.saturating_add(fixed.saturating_mul(model.models() as u64));
                largest = largest.max(dynamic);
            }
            let needed_mb = loaded.saturating_add(largest) as f64 / MIB;
            if needed_mb > memory_mb {
                let expected = format!(
                    "at least {needed_mb:.1}, which the models' profiles need on a GPU of kind `{}`: all loaded, and the largest batch",
                    gpu.kind
                );
                return self.refuse(format!("gpu.{position}.memory_mb"), &expected, memory_mb);
            }
        }
        Ok(())
    }
}
