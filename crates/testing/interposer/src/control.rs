//! The file through which faults are ordered while a process runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bytes::u64_at;
use crate::clock::{Bend, Clock};
use crate::rule::{RULE_BYTES, Rule, SEEN_AT, STRUCK_AT};

/// Rules that can hold at a time.
pub const RULES_MAX: usize = 16;

const MAGIC: u64 = 0x5449_4e48_5053_4d59;
const LAYOUT: u32 = 1;
const LAYOUT_AT: u64 = 8;
const ACTIVE_AT: u64 = 12;
const RULES_AT: u64 = 256;
const CONTROL_BYTES: u64 = RULES_AT + (RULES_MAX * RULE_BYTES) as u64;

/// A control file. Every process that was started with it obeys it at once; many may share one.
#[derive(Debug)]
pub struct Control {
    file: File,
    path: PathBuf,
    on: [bool; RULES_MAX],
    bends: [Bend; 2],
    versions: [u32; 2],
}

impl Control {
    /// Makes a control file without any fault.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.set_len(CONTROL_BYTES)?;
        file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        file.write_all_at(&LAYOUT.to_ne_bytes(), LAYOUT_AT)?;
        Ok(Self { file, path, on: [false; RULES_MAX], bends: [Bend::default(); 2], versions: [0; 2] })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a rule into force in `slot`, in place of the one before; its counts begin at zero.
    ///
    /// # Errors
    /// There is no such slot, the pattern is too long, or the file cannot be written.
    pub fn set(&mut self, slot: usize, rule: &Rule) -> io::Result<()> {
        let bytes = rule.encode().ok_or_else(|| invalid(format!("pattern `{}` is too long", rule.paths)))?;
        self.lift(slot)?;
        self.file.write_all_at(&bytes[4..], at(slot) + 4)?;
        self.switch(slot, true)
    }

    /// Takes the rule in `slot` back; what it delays goes on.
    ///
    /// # Errors
    /// There is no such slot, or the file cannot be written.
    pub fn lift(&mut self, slot: usize) -> io::Result<()> {
        if slot >= RULES_MAX {
            return Err(invalid(format!("slot {slot} is beyond the last, {}", RULES_MAX - 1)));
        }
        self.switch(slot, false)
    }

    fn switch(&mut self, slot: usize, on: bool) -> io::Result<()> {
        self.file.write_all_at(&u32::from(on).to_ne_bytes(), at(slot))?;
        self.on[slot] = on;
        let active = self.on.iter().filter(|on| **on).count() as u32;
        self.file.write_all_at(&active.to_ne_bytes(), ACTIVE_AT)
    }

    /// How many operations the rule in `slot` was about so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn seen(&self, slot: usize) -> io::Result<u64> {
        self.count(slot, SEEN_AT)
    }

    /// How many of them suffered.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn struck(&self, slot: usize) -> io::Result<u64> {
        self.count(slot, STRUCK_AT)
    }

    fn count(&self, slot: usize, place: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at(slot) + place as u64)?;
        Ok(u64_at(&bytes, 0))
    }

    /// Lets the wall clock jump.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn jump(&mut self, by: Duration, back: bool) -> io::Result<()> {
        let ns = i64::try_from(by.as_nanos()).map_err(|_| invalid(format!("a jump by {by:?} is too far")))?;
        let rate = self.bends[0].rate_ppm;
        self.bend(Clock::Realtime, if back { -ns } else { ns }, rate)
    }

    /// Lets a clock run faster by this many millionths, or slower if negative, from now on.
    ///
    /// # Errors
    /// It would stand still or run backwards, or the file cannot be written.
    pub fn set_rate(&mut self, clock: Clock, rate_ppm: i64) -> io::Result<()> {
        if rate_ppm <= -1_000_000 {
            return Err(invalid(format!("rate {rate_ppm} ppm would stop the clock")));
        }
        self.bend(clock, 0, rate_ppm)
    }

    fn bend(&mut self, clock: Clock, jump_ns: i64, rate_ppm: i64) -> io::Result<()> {
        let which = match clock {
            Clock::Realtime => 0,
            Clock::Monotonic => 1,
        };
        let bend = self.bends[which].rebent(clock.real_ns()?, jump_ns, rate_ppm);
        self.bends[which] = bend;
        // Odd while the rest is being written: readers wait.
        for (step, body) in [(1, None), (2, Some(bend.encode()))] {
            if let Some(body) = body {
                self.file.write_all_at(&body, clock.at() + 4)?;
            }
            let version = self.versions[which].wrapping_add(step);
            self.file.write_all_at(&version.to_ne_bytes(), clock.at())?;
        }
        self.versions[which] = self.versions[which].wrapping_add(2);
        Ok(())
    }
}

fn at(slot: usize) -> u64 {
    RULES_AT + (slot * RULE_BYTES) as u64
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
