//! Chooses the port of a device, by the kernel's `/sys/class/infiniband`.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel lists devices.
#[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "nothing is opened"))]
pub(crate) const DEVICES: &str = "/sys/class/infiniband";
/// The most global names (GIDs) of one port that are read.
const GIDS_MAX: u8 = 64;

/// A port that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of its device, as below `/sys/class/infiniband`.
    pub device: String,
    /// Its number there, from 1.
    pub number: u8,
    /// Its address on an InfiniBand network; 0 on Ethernet.
    pub lid: u16,
    /// Which of its global names is used.
    pub gid_index: u8,
    /// The GID.
    pub gid: [u8; 16],
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The kernel knows no device.
    #[error("this machine has no RDMA device")]
    NoDevice,
    /// Not the one that is wanted.
    #[error("there is no RDMA device `{wanted}`; there are {there}")]
    Other {
        /// The name that was asked for.
        wanted: String,
        /// The names of existing devices.
        there: String,
    },
    /// No port is up.
    #[error("no port of {devices} is active and has an address; see `rdma link`")]
    Down {
        /// The devices that were examined.
        devices: String,
    },
}

impl Port {
    /// The first active port of the device, or of any.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(devices: &Path, wanted: Option<&str>) -> Result<Self, PortError> {
        let mut names = entries(devices);
        if names.is_empty() {
            return Err(PortError::NoDevice);
        }
        if let Some(wanted) = wanted {
            let there = names.join(", ");
            names.retain(|name| name == wanted);
            if names.is_empty() {
                return Err(PortError::Other { wanted: wanted.to_owned(), there });
            }
        }
        let found = names.iter().find_map(|name| {
            let ports = devices.join(name).join("ports");
            entries(&ports).iter().find_map(|port| Self::at(&ports.join(port), name, port.parse().ok()?))
        });
        found.ok_or_else(|| PortError::Down { devices: names.join(", ") })
    }

    fn at(dir: &Path, device: &str, number: u8) -> Option<Self> {
        if !line(dir.join("state"))?.ends_with("ACTIVE") {
            return None;
        }
        let lid = line(dir.join("lid")).and_then(|lid| u16::from_str_radix(lid.trim_start_matches("0x"), 16).ok());
        let lid = lid.unwrap_or(0);
        let ethernet = line(dir.join("link_layer")).is_some_and(|layer| layer == "Ethernet");
        let (gid_index, gid) = if ethernet { routable(dir)? } else { (0, gid(dir, 0).unwrap_or_default()) };
        (ethernet || lid != 0).then(|| Self { device: device.to_owned(), number, lid, gid_index, gid })
    }
}

/// On Ethernet: a name that routers know (RoCE v2), and of these one that is an IPv4 address if there is one.
fn routable(dir: &Path) -> Option<(u8, [u8; 16])> {
    let v2 = |&index: &u8| line(dir.join(format!("gid_attrs/types/{index}"))).is_some_and(|kind| kind == "RoCE v2");
    let named: Vec<_> = (0..GIDS_MAX).filter(v2).filter_map(|index| Some((index, gid(dir, index)?))).collect();
    let is_v4 = |gid: &[u8; 16]| gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
    named.iter().find(|(_, gid)| is_v4(gid)).or(named.first()).copied()
}

fn gid(dir: &Path, index: u8) -> Option<[u8; 16]> {
    let text = line(dir.join(format!("gids/{index}")))?;
    let mut gid = [0; 16];
    let mut groups = text.split(':');
    for pair in gid.chunks_mut(2) {
        pair.copy_from_slice(&u16::from_str_radix(groups.next()?, 16).ok()?.to_be_bytes());
    }
    (groups.next().is_none() && gid != [0; 16]).then_some(gid)
}

/// What a folder has, in order; nothing if there is no such folder.
fn entries(dir: &Path) -> Vec<String> {
    let list = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<_> = list.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The one line of a file; none where the kernel reports nothing.
fn line(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with one port, as the kernel shows it.
    fn device(root: &Path, name: &str, state: &str, layer: &str, gids: &[(&str, &str)]) {
        let port = root.join(name).join("ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        let lid = if layer == "InfiniBand" { "0x1f\n" } else { "0x0\n" };
        for (file, text) in [("state", state), ("link_layer", layer), ("lid", lid)] {
            fs::write(port.join(file), text).unwrap();
        }
        for (index, (gid, kind)) in gids.iter().enumerate() {
            fs::write(port.join(format!("gids/{index}")), format!("{gid}\n")).unwrap();
            fs::write(port.join(format!("gid_attrs/types/{index}")), format!("{kind}\n")).unwrap();
        }
    }

    const LINK_LOCAL: &str = "fe80:0000:0000:0000:2097:2aff:fe06:d28f";
    const V4: &str = "0000:0000:0000:0000:0000:ffff:0a09:0001";
    const NONE: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

    #[test]
    fn an_active_port_with_a_routable_name_is_found() {
        let root = tempfile::tempdir().unwrap();
        let find = |wanted| Port::find(root.path(), wanted);
        assert_eq!(find(None), Err(PortError::NoDevice));
        assert_eq!(Port::find(&root.path().join("nothing"), None), Err(PortError::NoDevice));
        device(root.path(), "a0", "1: DOWN", "Ethernet", &[(V4, "RoCE v2")]);
        assert!(matches!(find(None), Err(PortError::Down { .. })));
        let gids = [(LINK_LOCAL, "IB/RoCE v1"), (LINK_LOCAL, "RoCE v2"), (V4, "IB/RoCE v1"), (V4, "RoCE v2")];
        device(root.path(), "b0", "4: ACTIVE\n", "Ethernet\n", &gids);
        let found = find(None).unwrap();
        assert_eq!((found.device.as_str(), found.number, found.lid, found.gid_index), ("b0", 1, 0, 3));
        assert_eq!(found.gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1]);
        assert_eq!(find(Some("b0")), Ok(found));
        assert!(matches!(find(Some("a0")), Err(PortError::Down { .. })));
        let other = find(Some("c0")).unwrap_err();
        assert_eq!(other.to_string(), "there is no RDMA device `c0`; there are a0, b0");
    }

    #[test]
    fn a_port_without_an_address_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        device(
            root.path(),
            "a0",
            "4: ACTIVE",
            "Ethernet",
            &[(NONE, "RoCE v2"), ("nonsense", "RoCE v2"), (V4, "IB/RoCE v1")],
        );
        assert!(matches!(Port::find(root.path(), None), Err(PortError::Down { .. })));
        device(root.path(), "b0", "4: ACTIVE", "InfiniBand", &[(LINK_LOCAL, "IB/RoCE v1")]);
        let found = Port::find(root.path(), None).unwrap();
        assert_eq!((found.lid, found.gid_index), (0x1f, 0));
    }
}
