//! A test double of the CUDA driver and of cuBLASLt, in host memory: not a GPU, and no proof that one would do the
//! same.

mod control;

use std::path::Path;

pub use control::{Control, Copied};

/// The folder with the double, under the names by which the driver and cuBLASLt are looked up.
#[must_use]
pub fn library_dir() -> &'static Path {
    Path::new(env!("SYMPHONY_CUDA_DOUBLE_DIR"))
}

/// What a process that is about to be started finds in place of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Double {
    /// 1, or 0 for a driver that has nothing to drive.
    pub devices: u32,
    /// The newest CUDA that the driver supports, as it reports it: 13000 for 13.0.
    pub driver_version: u32,
    /// The device's memory.
    pub memory_mb: u64,
    /// Whether memory can be taken and given back in a stream's order.
    pub memory_pools: bool,
    /// How fast copies between host and device are.
    pub copy_gbps: f64,
    /// What each product of matrices takes beside its operations.
    pub launch_us: f64,
    /// How fast it multiplies.
    pub tflops: f64,
}

impl Default for Double {
    fn default() -> Self {
        Self {
            devices: 1,
            driver_version: 13_000,
            memory_mb: 16_384,
            memory_pools: true,
            copy_gbps: 25.0,
            launch_us: 100.0,
            tflops: 100.0,
        }
    }
}

impl Double {
    /// The variables with which a process finds the double, and obeys a control.
    #[must_use]
    pub fn environment(&self, control: &Path) -> Vec<(String, String)> {
        let settings = [
            ("DEVICES", f64::from(self.devices)),
            ("DRIVER_VERSION", f64::from(self.driver_version)),
            ("MEMORY_MB", self.memory_mb as f64),
            ("MEMORY_POOLS", f64::from(u8::from(self.memory_pools))),
            ("COPY_GBPS", self.copy_gbps),
            ("LAUNCH_US", self.launch_us),
            ("TFLOPS", self.tflops),
        ];
        let settings = settings.map(|(name, value)| (format!("CUDA_DOUBLE_{name}"), value.to_string()));
        let paths = [(CONTROL, control), ("LD_LIBRARY_PATH", library_dir())];
        let paths = paths.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        settings.into_iter().chain(paths).collect()
    }
}

/// The variable that names the control file.
pub const CONTROL: &str = "CUDA_DOUBLE_CONTROL";
