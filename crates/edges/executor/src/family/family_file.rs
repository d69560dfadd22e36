//! The file of a model that may share its trunk: where it can be cut, and whether its parts answer as the whole does.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use symphony_types::CutDigest;

use super::{CpuLoader, FamilyError, FamilyExecutor, read};
use crate::files::open_regular;
use crate::onnx_session::OnnxOptions;
use crate::runtime::Runtime;
use crate::stop::Stop;

/// Bytes of a file that is taken apart: it lies in memory beside the models that are being served, and a larger one is
/// served whole.
pub const FAMILY_FILE_BYTES_MAX: u64 = 512 << 20;

/// The file of a model, in memory.
#[derive(Clone, Debug)]
pub struct FamilyFile {
    pub(super) name: String,
    pub(super) bytes: Bytes,
}

impl FamilyFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or is longer than [`FAMILY_FILE_BYTES_MAX`].
    pub fn read(path: &Path) -> Result<Self, FamilyError> {
        let name = path.display().to_string();
        let refused = |problem: String| FamilyError::File { model: name.clone(), problem };
        let file = open_regular(path).map_err(|error| refused(error.to_string()))?;
        let mut bytes = Vec::new();
        let read = file.take(FAMILY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| refused(error.to_string()))?;
        if bytes.len() as u64 > FAMILY_FILE_BYTES_MAX {
            let most = FAMILY_FILE_BYTES_MAX >> 20;
            return Err(refused(format!("the file is longer than {most} MiB, and such models are served whole")));
        }
        Ok(Self { name, bytes: bytes.into() })
    }

    /// What the model computes up to each cut point: as many as are reported to a cluster, the shallowest first.
    ///
    /// # Errors
    /// If the model cannot be read.
    pub fn cuts(&self) -> Result<Vec<CutDigest>, FamilyError> {
        let model = read(&self.name, &self.bytes)?;
        Ok(CutDigest::reported(model.cuts().iter().map(|cut| CutDigest::of(cut.hash.as_bytes()))))
    }

    /// Compares the model with its parts on the CPU, as [`FamilyExecutor::form`] does; nothing of it stays. A batch
    /// that takes longer than `within` is aborted, and any once `stop` is given up: the model was loaded with a batch
    /// of zeros, and other inputs may make it loop for ever.
    ///
    /// # Errors
    /// If it cannot be cut there, cannot be loaded, does not end, or answers differently in parts than whole.
    pub fn check(
        &self,
        runtime: &Runtime,
        trunk: CutDigest,
        options: &OnnxOptions,
        (stop, within): (&Stop, Duration),
    ) -> Result<(), FamilyError> {
        let (models, limit) = ([(self.name.as_str(), self.bytes.clone())], Some((stop.clone(), within)));
        FamilyExecutor::form_at(CpuLoader::new(runtime, options), &models, trunk, limit, &|_| ()).map(drop)
    }
}
