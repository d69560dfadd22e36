//! A disk as the power cut sees it: what was synced is kept, of everything else only what happened to be written.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use symphony_interposer::Change;

use crate::cut::Cut;
use crate::file_change::FileChange;

/// A change of a directory that was not synced yet.
#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Add { name: OsString, node: usize },
    Remove { name: OsString },
    Rename { from: OsString, to: OsString },
}

#[derive(Debug, Default)]
struct FileNode<'a> {
    durable: Vec<u8>,
    pending: Vec<FileChange<'a>>,
}

#[derive(Debug, Default)]
struct DirNode {
    durable: BTreeMap<OsString, usize>,
    /// As a running process sees it.
    now: BTreeMap<OsString, usize>,
    pending: Vec<NameChange>,
}

#[derive(Debug)]
enum Node<'a> {
    File(FileNode<'a>),
    Dir(DirNode),
}

/// One directory tree. Syncing a file makes its bytes durable, not its name; syncing a directory the names in it. Names
/// of one directory become durable in order (file systems keep a journal of them), bytes of a file in any order.
#[derive(Debug)]
pub(crate) struct SimulatedDisk<'a> {
    root: PathBuf,
    nodes: Vec<Node<'a>>,
    /// Which node has an inode's number now; numbers are used again.
    inodes: HashMap<u64, usize>,
}

const ROOT: usize = 0;

impl<'a> SimulatedDisk<'a> {
    /// What is in `root` at this moment, all of it durable.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let mut disk =
            Self { root: root.to_owned(), nodes: vec![Node::Dir(DirNode::default())], inodes: HashMap::new() };
        disk.inodes.insert(fs::metadata(root)?.ino(), ROOT);
        disk.scan(ROOT, root)?;
        Ok(disk)
    }

    fn scan(&mut self, dir: usize, path: &Path) -> Result<()> {
        for file in fs::read_dir(path)? {
            let file = file?;
            let meta = file.metadata()?;
            let node = if meta.is_dir() {
                Node::Dir(DirNode::default())
            } else {
                Node::File(FileNode { durable: fs::read(file.path())?, pending: Vec::new() })
            };
            let number = self.add(meta.ino(), node);
            let parent = self.dir(dir)?;
            parent.durable.insert(file.file_name(), number);
            parent.now.insert(file.file_name(), number);
            if meta.is_dir() {
                self.scan(number, &file.path())?;
            }
        }
        Ok(())
    }

    fn add(&mut self, inode: u64, node: Node<'a>) -> usize {
        self.nodes.push(node);
        self.inodes.insert(inode, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn dir(&mut self, node: usize) -> Result<&mut DirNode> {
        match self.nodes.get_mut(node) {
            Some(Node::Dir(dir)) => Ok(dir),
            _ => bail!("node {node} is no directory"),
        }
    }

    fn file(&mut self, inode: u64) -> Result<&mut FileNode<'a>> {
        match self.inodes.get(&inode).and_then(|node| self.nodes.get_mut(*node)) {
            Some(Node::File(file)) => Ok(file),
            _ => bail!("inode {inode} is no file that was seen"),
        }
    }

    /// The directory that a path is in, and its name there.
    fn place(&mut self, path: &Path) -> Result<(usize, OsString)> {
        let below = path.strip_prefix(&self.root).with_context(|| format!("{} is elsewhere", path.display()))?;
        let name = below.file_name().context("the root has no name")?.to_owned();
        let mut at = ROOT;
        for component in below.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(step) = component else { bail!("{} is not plain", path.display()) };
            at = *self.dir(at)?.now.get(step).with_context(|| format!("{} was never made", path.display()))?;
        }
        Ok((at, name))
    }

    /// Lets a change happen.
    pub(crate) fn apply(&mut self, change: &Change<'a>) -> Result<()> {
        match change {
            Change::Created { inode, path } => self.link(path, *inode, Node::File(FileNode::default())),
            Change::MadeDir { inode, path } => self.link(path, *inode, Node::Dir(DirNode::default())),
            Change::Written { inode, offset, data } => {
                self.file(*inode)?.pending.push(FileChange::Write { offset: *offset, data });
                Ok(())
            }
            Change::Truncated { inode, length } => {
                self.file(*inode)?.pending.push(FileChange::Length(*length));
                Ok(())
            }
            Change::Renamed { from, to } => {
                let (from_dir, from) = self.place(from)?;
                let (to_dir, to) = self.place(to)?;
                if from_dir != to_dir {
                    bail!("a rename from one directory to another is not simulated");
                }
                let dir = self.dir(from_dir)?;
                let node = dir.now.remove(&from).context("what was renamed was never there")?;
                dir.now.insert(to.clone(), node);
                dir.pending.push(NameChange::Rename { from, to });
                Ok(())
            }
            Change::Unlinked { path } => {
                let (dir, name) = self.place(path)?;
                let dir = self.dir(dir)?;
                dir.now.remove(&name);
                dir.pending.push(NameChange::Remove { name });
                Ok(())
            }
            Change::Synced { inode } => {
                let node = self.inodes.get(inode).with_context(|| format!("inode {inode} was never seen"))?;
                match &mut self.nodes[*node] {
                    Node::File(file) => {
                        let pending = std::mem::take(&mut file.pending);
                        pending.iter().for_each(|change| change.apply(&mut file.durable));
                    }
                    Node::Dir(dir) => {
                        let pending = std::mem::take(&mut dir.pending);
                        pending.iter().for_each(|change| change.apply(&mut dir.durable));
                    }
                }
                Ok(())
            }
            Change::Mark(_) => Ok(()),
            Change::Unknown(what) => bail!("the process did what cannot be simulated: {what}"),
        }
    }

    fn link(&mut self, path: &Path, inode: u64, node: Node<'a>) -> Result<()> {
        let (dir, name) = self.place(path)?;
        let number = self.add(inode, node);
        let dir = self.dir(dir)?;
        dir.now.insert(name.clone(), number);
        dir.pending.push(NameChange::Add { name, node: number });
        Ok(())
    }

    /// Cuts the power now and writes what is left to `target`.
    pub(crate) fn cut(&self, cut: &mut Cut, target: &Path) -> io::Result<()> {
        self.write_dir(ROOT, cut, target)
    }

    fn write_dir(&self, node: usize, cut: &mut Cut, target: &Path) -> io::Result<()> {
        let Some(Node::Dir(dir)) = self.nodes.get(node) else { return Ok(()) };
        fs::create_dir_all(target)?;
        let mut names = dir.durable.clone();
        dir.pending[..cut.names_kept(dir.pending.len())].iter().for_each(|change| change.apply(&mut names));
        for (name, node) in names {
            let path = target.join(name);
            match &self.nodes[node] {
                Node::Dir(_) => self.write_dir(node, cut, &path)?,
                Node::File(file) => {
                    let mut bytes = file.durable.clone();
                    cut.keep(&file.pending, &mut bytes);
                    fs::write(path, bytes)?;
                }
            }
        }
        Ok(())
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        match self {
            Self::Add { name, node } => {
                names.insert(name.clone(), *node);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
            Self::Rename { from, to } => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Kept;

    fn left(disk: &SimulatedDisk<'_>, kept: Kept) -> BTreeMap<String, String> {
        let dir = tempfile::tempdir().expect("temporary directory");
        disk.cut(&mut Cut::new(kept, 1), dir.path()).expect("cuts");
        let files = fs::read_dir(dir.path()).expect("lists").map(|file| {
            let file = file.expect("file");
            let text = fs::read_to_string(file.path()).expect("reads");
            (file.file_name().to_string_lossy().into_owned(), text)
        });
        files.collect()
    }

    fn files(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn names_and_bytes_are_durable_each_by_their_own_sync() {
        let root = tempfile::tempdir().expect("temporary directory");
        let mut disk = SimulatedDisk::of(root.path()).expect("scans");
        let root_inode = fs::metadata(root.path()).expect("root").ino();
        let path = |name: &str| root.path().join(name);
        let mut apply = |change| disk.apply(&change).expect("applies");
        apply(Change::Created { inode: 7, path: path("new") });
        apply(Change::Written { inode: 7, offset: 0, data: b"abc" });
        apply(Change::Synced { inode: 7 });
        assert_eq!(left(&disk, Kept::Nothing), files(&[]), "bytes without a name");
        assert_eq!(left(&disk, Kept::Everything), files(&[("new", "abc")]));

        let mut apply = |change| disk.apply(&change).expect("applies");
        apply(Change::Synced { inode: root_inode });
        apply(Change::Written { inode: 7, offset: 4, data: b"d" });
        apply(Change::Renamed { from: path("new"), to: path("newer") });
        assert_eq!(left(&disk, Kept::Nothing), files(&[("new", "abc")]), "neither the bytes nor the new name");
        assert_eq!(left(&disk, Kept::Everything), files(&[("newer", "abc\0d")]));

        let mut apply = |change| disk.apply(&change).expect("applies");
        apply(Change::Synced { inode: root_inode });
        apply(Change::Unlinked { path: path("newer") });
        // The number is used again; the old file, whose removal may be lost, is not the new one.
        apply(Change::Created { inode: 7, path: path("other") });
        apply(Change::Written { inode: 7, offset: 0, data: b"xyz" });
        assert_eq!(left(&disk, Kept::Nothing), files(&[("newer", "abc")]));
        assert_eq!(left(&disk, Kept::Everything), files(&[("other", "xyz")]));
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let root = tempfile::tempdir().expect("temporary directory");
        let mut disk = SimulatedDisk::of(root.path()).expect("scans");
        assert!(disk.apply(&Change::Unknown("mmap".into())).is_err());
        assert!(disk.apply(&Change::Written { inode: 99, offset: 0, data: b"?" }).is_err());
    }
}
