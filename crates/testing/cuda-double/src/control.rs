//! The file through which faults are ordered while a process runs, and copies are counted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// As `struct control` of the double has them, eight bytes each.
#[derive(Clone, Copy)]
enum ControlField {
    AllocationFailsIn,
    DeviceLostIn,
    DeafStream,
    ImpatientHost,
    CopiedIn,
    CopiedOut,
    CopiedWithin,
    CopyMbps,
}

const FIELDS: u64 = ControlField::CopyMbps as u64 + 1;
const BYTES: u64 = FIELDS * 8;

/// Bytes that calls of the driver have asked to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub to_host: u64,
    /// From one place of the device's memory to another.
    pub within_device: u64,
}

/// A control file. The process that was started with it obeys it at once.
#[derive(Debug)]
pub struct Control(File);

impl Control {
    /// Makes a control file without any fault.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(BYTES)?;
        Ok(Self(file))
    }

    /// Opens an existing one.
    ///
    /// # Errors
    /// If it is not.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// The `nth` allocation from now, 1 the next, of the device's memory or of pinned memory is refused for lack of
    /// memory; 0 lifts that.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn fail_allocation(&self, nth: u64) -> io::Result<()> {
        self.set(ControlField::AllocationFailsIn, nth)
    }

    /// The `nth` product of matrices from now, 1 the next, uses a bad address: every call fails from then on.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn lose_device(&self, nth: u64) -> io::Result<()> {
        self.set(ControlField::DeviceLostIn, nth)
    }

    /// The stream that was made as `nth`, 1 the first, does not wait for events: as if its waits had been left out.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn deafen(&self, nth: u64) -> io::Result<()> {
        self.set(ControlField::DeafStream, nth)
    }

    /// The host does not wait for events: as if its waits had been left out.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn make_host_impatient(&self) -> io::Result<()> {
        self.set(ControlField::ImpatientHost, 1)
    }

    /// Copies between host and device that are asked for from now on go at this many megabytes a second; 0: as fast as
    /// the process was started with ([`Double::copy_gbps`](crate::Double::copy_gbps)).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn copy_at(&self, mbps: u64) -> io::Result<()> {
        self.set(ControlField::CopyMbps, mbps)
    }

    /// What has been copied so far. A copy counts when it is asked for.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn copied(&self) -> io::Result<Copied> {
        Ok(Copied {
            to_device: self.get(ControlField::CopiedIn)?,
            to_host: self.get(ControlField::CopiedOut)?,
            within_device: self.get(ControlField::CopiedWithin)?,
        })
    }

    fn set(&self, place: ControlField, value: u64) -> io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), place as u64 * 8)
    }

    fn get(&self, place: ControlField) -> io::Result<u64> {
        let mut value = [0; 8];
        self.0.read_exact_at(&mut value, place as u64 * 8)?;
        Ok(u64::from_ne_bytes(value))
    }
}
