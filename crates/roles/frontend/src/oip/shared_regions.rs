//! Triton's system shared memory: objects of POSIX shared memory that clients of this host have registered, for inputs
//! to be read from and outputs to be written to.
//!
//! Nothing is mapped: an object is read and written through its descriptor when a request needs it. A region that its
//! client has cut short meanwhile is an error of that request; touching a mapping of it would end this process
//! (SIGBUS).
//!
//! A region is this process's own and its tenant's: no other frontend knows it, and no other tenant. Nor may another
//! tenant register its object while it is there; the system does not record whose an object was before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::refusal_text::{invalid, shorten};
use super::{AccessError, InferError};

/// Regions at a time, each a file descriptor.
pub const REGIONS_MAX: usize = 512;
/// The most of these of one tenant.
pub const REGIONS_PER_TENANT_MAX: usize = 64;
/// Most bytes of a region's name, and of its key: as long as the system's own names may be.
const NAME_BYTES_MAX: usize = 255;
/// Where the system has objects of POSIX shared memory, by their names.
const OBJECTS: &str = "/dev/shm";

/// What clients have registered.
#[derive(Debug, Default)]
pub struct SharedRegions {
    /// By tenant and name.
    owners: RwLock<BTreeMap<String, BTreeMap<String, Arc<Region>>>>,
}

/// A part of an object of shared memory.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: String,
    /// The object's name.
    pub(crate) key: String,
    /// Where in it the region begins.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    object: File,
    /// By what the system tells the object from others: its device and its number there.
    identity: (u64, u64),
    /// This process may also write it.
    is_writable: bool,
}

impl Region {
    fn open(name: &str, key: &str, offset: u64, bytes: u64) -> Result<Self, InferError> {
        let refused = |why: String| invalid(format!("region `{}`: {why}", shorten(name)));
        let shown = shorten(key);
        let object = key.trim_start_matches('/');
        if matches!(object, "" | "." | "..") || object.contains('/') || object.len() > NAME_BYTES_MAX {
            return Err(refused(format!("its key is `{shown}`; expected the name of shared memory, such as `/input`")));
        }
        let path = format!("{OBJECTS}/{object}");
        // A link put there must not make this process open its target, or wait for what is no file.
        let open = |access: OFlags| {
            rustix::fs::open(
                path.as_str(),
                access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let opened = match open(OFlags::RDWR) {
            Ok(object) => Ok((object, true)),
            Err(Errno::ACCESS) => open(OFlags::RDONLY).map(|object| (object, false)),
            Err(error) => Err(error),
        };
        let (object, is_writable) = opened.map_err(|error| {
            refused(format!("shared memory `{shown}` cannot be opened on the frontend's host: {error}"))
        })?;
        let object = File::from(object);
        let is = object.metadata().map_err(|error| refused(format!("shared memory `{shown}`: {error}")))?;
        if !is.is_file() {
            return Err(refused(format!("`{shown}` is no shared memory")));
        }
        let has = is.len();
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > has) {
            return Err(refused(format!(
                "shared memory `{shown}` has {has} bytes; expected a byte_size from 1 that ends within them, got \
                 {bytes} at offset {offset}"
            )));
        }
        let (name, key, identity) = (name.to_owned(), key.to_owned(), (is.dev(), is.ino()));
        Ok(Self { name, key, offset, bytes, object, identity, is_writable })
    }

    /// Whether its object has no name any more. Clients take its name away when they are done with it, and some as soon
    /// as it is registered.
    fn is_nameless(&self) -> bool {
        self.object.metadata().is_ok_and(|is| is.nlink() == 0)
    }
}

impl SharedRegions {
    fn register(&self, owner: &str, name: &str, key: &str, offset: u64, bytes: u64) -> Result<(), InferError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let got = name.len();
            return Err(invalid(format!("the region's name has {got} bytes; expected 1 to {NAME_BYTES_MAX}")));
        }
        let region = Region::open(name, key, offset, bytes)?;
        // Closed once others may go on: that may free their memory.
        let mut gone: Vec<Arc<Region>> = Vec::new();
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        let has_object =
            |regions: &BTreeMap<String, Arc<Region>>| regions.values().any(|known| known.identity == region.identity);
        if owners.iter().any(|(other, regions)| other != owner && has_object(regions)) {
            return Err(InferError::ObjectTaken(shorten(key)));
        }
        if owners.get(owner).is_some_and(|own| own.contains_key(name)) {
            return Err(InferError::RegionExists(shorten(name)));
        }
        // Anonymous callers are all one.
        let own_max = if owner.is_empty() { REGIONS_MAX } else { REGIONS_PER_TENANT_MAX };
        let all: usize = owners.values().map(BTreeMap::len).sum();
        if all >= REGIONS_MAX || owners.get(owner).is_some_and(|own| own.len() >= own_max) {
            // Its clients that have ended have forgotten theirs. Regions of others stay: a client may drop the name of
            // what it goes on using.
            if let Some(regions) = owners.get_mut(owner) {
                gone.extend(regions.values().filter(|known| known.is_nameless()).cloned());
                regions.retain(|_, known| !gone.iter().any(|gone| Arc::ptr_eq(gone, known)));
            }
            owners.retain(|_, regions| !regions.is_empty());
        }
        let all: usize = owners.values().map(BTreeMap::len).sum();
        if owners.get(owner).map_or(0, BTreeMap::len) >= own_max {
            return Err(InferError::RegionsFull { regions_max: own_max });
        }
        if all >= REGIONS_MAX {
            return Err(InferError::RegionsFull { regions_max: REGIONS_MAX });
        }
        owners.entry(owner.to_owned()).or_default().insert(name.to_owned(), Arc::new(region));
        Ok(())
    }

    /// Takes out one region, or all of an owner's; none is no error. Requests that have begun keep theirs.
    fn unregister(&self, owner: &str, name: &str) -> Vec<Arc<Region>> {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() {
            return owners.remove(owner).into_iter().flat_map(BTreeMap::into_values).collect();
        }
        let taken = owners.get_mut(owner).and_then(|own| own.remove(name));
        owners.retain(|_, regions| !regions.is_empty());
        taken.into_iter().collect()
    }

    /// One region, or all of an owner's, by name.
    fn status(&self, owner: &str, name: &str) -> Result<Vec<Arc<Region>>, InferError> {
        if !name.is_empty() {
            return Ok(vec![self.find(owner, name)?]);
        }
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        Ok(owners.get(owner).into_iter().flat_map(BTreeMap::values).cloned().collect())
    }

    fn find(&self, owner: &str, name: &str) -> Result<Arc<Region>, InferError> {
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        let found = owners.get(owner).and_then(|own| own.get(name)).cloned();
        found.ok_or_else(|| InferError::UnknownRegion(shorten(name)))
    }

    fn has_any(&self, owner: &str) -> bool {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).contains_key(owner)
    }
}

/// The regions that a caller may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Regions<'a> {
    /// The configuration allows none.
    Off,
    /// None: a name of its own host's memory means nothing here, and this host's is not its own.
    Far,
    /// The regions of its tenant.
    Of { all: &'a SharedRegions, owner: &'a str },
}

impl<'a> Regions<'a> {
    fn get(self) -> Result<(&'a SharedRegions, &'a str), InferError> {
        match self {
            Self::Off => Err(InferError::Unsupported(
                "shared memory is not served here: send the data of tensors with the request, or have \
                 frontend.shared_memory set"
                    .into(),
            )),
            Self::Far => Err(AccessError::NotLocal.into()),
            Self::Of { all, owner } => Ok((all, owner)),
        }
    }

    /// Whether no request can name one.
    pub(crate) fn is_empty(self) -> bool {
        match self {
            Self::Off | Self::Far => true,
            Self::Of { all, owner } => !all.has_any(owner),
        }
    }

    pub(crate) fn register(self, name: &str, key: &str, offset: u64, bytes: u64) -> Result<(), InferError> {
        let (all, owner) = self.get()?;
        all.register(owner, name, key, offset, bytes)
    }

    /// Takes out one region, or all, for [`close`].
    pub(crate) fn unregister(self, name: &str) -> Result<Vec<Arc<Region>>, InferError> {
        let (all, owner) = self.get()?;
        Ok(all.unregister(owner, name))
    }

    pub(crate) fn status(self, name: &str) -> Result<Vec<Arc<Region>>, InferError> {
        let (all, owner) = self.get()?;
        all.status(owner, name)
    }

    /// The tensor that a request places there.
    pub(crate) fn tensor(self, placed: &Placement) -> Result<SharedTensor, InferError> {
        let (all, owner) = self.get()?;
        let region = all.find(owner, &placed.region)?;
        let &Placement { offset, bytes, .. } = placed;
        if offset.checked_add(bytes).is_none_or(|end| end > region.bytes) {
            let (name, has) = (shorten(&region.name), region.bytes);
            return Err(invalid(format!(
                "region `{name}` has {has} bytes; got a tensor of {bytes} at offset {offset}"
            )));
        }
        Ok(SharedTensor { region, offset, bytes })
    }

    /// The same, to be written.
    pub(crate) fn output(self, placed: &Placement) -> Result<SharedTensor, InferError> {
        let tensor = self.tensor(placed)?;
        if !tensor.region.is_writable {
            let name = shorten(&tensor.region.name);
            return Err(invalid(format!("region `{name}`: the frontend's user may not write its shared memory")));
        }
        Ok(tensor)
    }
}

/// Closes what was taken out, on a thread for such work: if no other process has an object, the system frees its
/// memory, gigabytes perhaps.
pub(crate) async fn close(regions: Vec<Arc<Region>>) {
    // The runtime gives such work up only when it shuts down.
    let _ = tokio::task::spawn_blocking(move || drop(regions)).await;
}

/// Where in shared memory a tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) region: String,
    /// Within the region.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A tensor in a region.
#[derive(Clone, Debug)]
pub(crate) struct SharedTensor {
    region: Arc<Region>,
    /// Within the region.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl PartialEq for SharedTensor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.region, &other.region) && (self.offset, self.bytes) == (other.offset, other.bytes)
    }
}

impl Eq for SharedTensor {}

impl SharedTensor {
    /// The name of its region.
    pub(crate) fn region(&self) -> &str {
        &self.region.name
    }

    /// Appends its bytes, which must be `expected` in number.
    pub(crate) fn read(&self, expected: usize, out: &mut Vec<u8>) -> Result<(), String> {
        if self.bytes != expected as u64 {
            let got = self.bytes;
            return Err(format!(
                "it has {got} bytes in shared memory; expected {expected}, as its shape and data type say"
            ));
        }
        self.check_object()?;
        let start = out.len();
        out.resize(start + expected, 0);
        let read = self.region.object.read_exact_at(&mut out[start..], self.in_object());
        read.map_err(|error| format!("region `{}` cannot be read: {error}", shorten(&self.region.name)))
    }

    /// Its first `bytes` bytes.
    pub(crate) fn beginning(&self, bytes: u64) -> Self {
        Self { bytes, ..self.clone() }
    }

    /// Writes its bytes.
    pub(crate) fn write(&self, data: &[u8]) -> Result<(), InferError> {
        self.check_object().map_err(invalid)?;
        let written = self.region.object.write_all_at(data, self.in_object());
        written.map_err(|error| {
            let name = shorten(&self.region.name);
            match error.kind() {
                // An object has its memory when it is written.
                ErrorKind::StorageFull => InferError::SharedMemoryFull(name),
                _ => invalid(format!("region `{name}` cannot be written: {error}")),
            }
        })
    }

    /// Where in the object it begins; it ends there, too, as was checked when the region was made.
    fn in_object(&self) -> u64 {
        self.region.offset + self.offset
    }

    /// Whether the object still has its bytes. An object that is cut short a moment later is read short, and grows
    /// again if it is written.
    fn check_object(&self) -> Result<(), String> {
        let name = || shorten(&self.region.name);
        let has = self.region.object.metadata().map_err(|error| format!("region `{}`: {error}", name()))?.len();
        let end = self.in_object() + self.bytes;
        if end > has {
            return Err(format!("region `{}` was cut short: its object has {has} bytes and {end} are needed", name()));
        }
        Ok(())
    }
}

/// An output of a call that is to be in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedOutput {
    /// Its index among the requested outputs.
    pub(crate) at: usize,
    pub(crate) tensor: SharedTensor,
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use symphony_types::DataType;

    use super::super::InFlightLimit;
    use super::super::outputs::{Content, Encoding, Output};
    use super::super::shared_memory_calls::place;
    use super::*;

    /// Shared memory of a test's own; its name is gone when this is dropped.
    struct Object(String);

    impl Object {
        fn new(test: &str, bytes: &[u8]) -> Self {
            let object = Self(format!("symphony-{test}-{}", std::process::id()));
            std::fs::write(object.path(), bytes).unwrap();
            object
        }

        fn path(&self) -> String {
            format!("{OBJECTS}/{}", self.0)
        }

        fn key(&self) -> String {
            format!("/{}", self.0)
        }
    }

    impl Drop for Object {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(self.path());
        }
    }

    fn placed(region: &str, offset: u64, bytes: u64) -> Placement {
        Placement { region: region.to_owned(), offset, bytes }
    }

    #[test]
    fn a_region_is_read_and_written_within_its_bounds_and_belongs_to_its_owner() {
        let object = Object::new("bounds", b"0123456789");
        let all = SharedRegions::default();
        let (ann, bob) = (Regions::Of { all: &all, owner: "ann" }, Regions::Of { all: &all, owner: "bob" });
        ann.register("r", &object.key(), 2, 6).unwrap();
        assert_eq!(ann.register("r", &object.key(), 0, 1), Err(InferError::RegionExists("r".into())));
        assert!(!ann.is_empty() && bob.is_empty());

        let mut read = b"<".to_vec();
        ann.tensor(&placed("r", 1, 3)).unwrap().read(3, &mut read).unwrap();
        assert_eq!(read, b"<345");
        let refused = ann.tensor(&placed("r", 1, 3)).unwrap().read(4, &mut read).unwrap_err();
        assert!(refused.starts_with("it has 3 bytes in shared memory; expected 4"), "{refused}");
        for (offset, bytes) in [(0, 7), (6, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let refused = ann.tensor(&placed("r", offset, bytes)).unwrap_err().to_string();
            assert!(refused.starts_with("region `r` has 6 bytes"), "{refused}");
        }
        ann.output(&placed("r", 4, 2)).unwrap().write(b"ab").unwrap();
        assert_eq!(std::fs::read(object.path()).unwrap(), b"012345ab89");

        assert_eq!(bob.tensor(&placed("r", 0, 1)), Err(InferError::UnknownRegion("r".into())));
        for key in [object.key(), object.0.clone()] {
            assert_eq!(bob.register("r", &key, 0, 1), Err(InferError::ObjectTaken(shorten(&key))));
        }
        assert_eq!(bob.status("").unwrap().len(), 0);
        bob.unregister("r").unwrap();
        bob.unregister("").unwrap();
        assert_eq!(ann.status("r").unwrap()[0].key, object.key());
        assert_eq!(ann.unregister("").unwrap().len(), 1);
        assert!(ann.is_empty() && ann.status("r").is_err());
        bob.register("r", &object.key(), 0, 1).unwrap();
    }

    #[test]
    fn an_object_that_is_cut_short_is_an_error_and_nothing_worse() {
        let object = Object::new("cut", &[7; 8192]);
        let all = SharedRegions::default();
        let own = Regions::Of { all: &all, owner: "" };
        own.register("r", &object.key(), 0, 8192).unwrap();
        let tensor = own.tensor(&placed("r", 4096, 4096)).unwrap();
        File::options().write(true).open(object.path()).unwrap().set_len(100).unwrap();
        let mut read = Vec::new();
        for refused in [tensor.read(4096, &mut read).map_err(invalid), tensor.write(&[0; 4096])] {
            let refused = refused.unwrap_err();
            let words = "region `r` was cut short: its object has 100 bytes and 8192 are needed";
            assert_eq!(refused, invalid(words.into()));
        }
        assert!(read.is_empty(), "nothing is made room for");
    }

    #[tokio::test]
    async fn a_call_that_ends_early_keeps_its_place_until_its_outputs_are_written() {
        const BYTES: usize = 16 << 20;
        let object = Object::new("early", &vec![0; BYTES]);
        let all = SharedRegions::default();
        let own = Regions::Of { all: &all, owner: "" };
        own.register("r", &object.key(), 0, BYTES as u64).unwrap();
        let shared = [SharedOutput { at: 0, tensor: own.output(&placed("r", 0, BYTES as u64)).unwrap() }];
        let content = Content::Elements(DataType::Uint8, vec![7; BYTES].into());
        let shape = vec![1, BYTES as i64];
        let mut outputs = [Output { name: "y", shape, encoding: Encoding::Raw, content, rows: None }];

        let limit = InFlightLimit::new(1);
        let permit = Arc::new(limit.acquire().unwrap());
        // Its client leaves as soon as the writing has begun.
        let placed = place(&mut outputs, &shared, permit).now_or_never();
        assert!(placed.is_none_or(|placed| placed.is_ok()));
        while limit.acquire().is_err() {
            tokio::task::yield_now().await;
        }
        assert!(std::fs::read(object.path()).unwrap().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_no_shared_memory_is_not_opened() {
        let object = Object::new("link", b"secret");
        let to_it = Object(format!("{}-to", object.0));
        std::os::unix::fs::symlink(object.path(), to_it.path()).unwrap();
        let all = SharedRegions::default();
        let own = Regions::Of { all: &all, owner: "" };
        let (long, link) = ("k".repeat(NAME_BYTES_MAX + 1), to_it.key());
        for key in
            ["", "/", "/..", ".", "/../etc/hostname", "/a/b", "/symphony-nobody", "a\0b", long.as_str(), link.as_str()]
        {
            let refused = own.register("r", key, 0, 1).unwrap_err();
            assert!(matches!(refused, InferError::InvalidRequest(_)), "{key}: {refused}");
        }
        for (offset, bytes) in [(0, 0), (0, 7), (6, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let refused = own.register("r", &object.key(), offset, bytes).unwrap_err().to_string();
            assert!(refused.contains("has 6 bytes; expected a byte_size from 1"), "{refused}");
        }
        for name in ["", long.as_str()] {
            assert!(own.register(name, &object.key(), 0, 1).is_err());
        }
        assert!(own.is_empty());
    }

    #[test]
    fn so_many_are_kept_of_one_tenant_and_of_all() {
        let all = SharedRegions::default();
        let tenants = REGIONS_MAX / REGIONS_PER_TENANT_MAX;
        let objects: Vec<_> = (0..=tenants).map(|tenant| Object::new(&format!("many-{tenant}"), b"0")).collect();
        for (tenant, object) in objects[..tenants].iter().enumerate() {
            let owner = format!("tenant-{tenant}");
            let own = Regions::Of { all: &all, owner: &owner };
            for region in 0..REGIONS_PER_TENANT_MAX {
                own.register(&region.to_string(), &object.key(), 0, 1).unwrap();
            }
            let refused = own.register("one more", &object.key(), 0, 1).unwrap_err();
            assert_eq!(refused, InferError::RegionsFull { regions_max: REGIONS_PER_TENANT_MAX });
        }
        let other = Regions::Of { all: &all, owner: "other" };
        let key = objects[tenants].key();
        let refused = other.register("r", &key, 0, 1).unwrap_err();
        assert_eq!(refused, InferError::RegionsFull { regions_max: REGIONS_MAX });
        Regions::Of { all: &all, owner: "tenant-0" }.unregister("7").unwrap();
        other.register("r", &key, 0, 1).unwrap();

        // Regions whose names are gone make room for their owner only.
        let [first, second] = ["tenant-0", "tenant-1"].map(|owner| Regions::Of { all: &all, owner });
        let fresh = Object::new("many-fresh", b"0");
        std::fs::remove_file(objects[1].path()).unwrap();
        first.register("7", &fresh.key(), 0, 1).unwrap_err();
        assert!(!second.is_empty());
        std::fs::remove_file(objects[0].path()).unwrap();
        first.register("7", &fresh.key(), 0, 1).unwrap();
    }

    #[test]
    fn where_everybody_is_served_one_may_have_more() {
        let object = Object::new("everybody", b"0");
        let all = SharedRegions::default();
        let everybody = Regions::Of { all: &all, owner: "" };
        for region in 0..=REGIONS_PER_TENANT_MAX {
            everybody.register(&region.to_string(), &object.key(), 0, 1).unwrap();
        }
    }

    #[test]
    fn who_is_not_of_this_host_or_is_not_allowed_any_hears_so() {
        let placed = placed("r", 0, 1);
        assert!(matches!(Regions::Off.tensor(&placed), Err(InferError::Unsupported(_))));
        let refused = [Regions::Far.tensor(&placed).map(drop), Regions::Far.register("r", "/r", 0, 1)];
        assert_eq!(refused, [const { Err(InferError::Access(AccessError::NotLocal)) }; 2]);
        assert!(Regions::Far.is_empty() && Regions::Off.is_empty());
    }
}
