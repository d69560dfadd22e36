//! The process that holds a port: its process, as far as this user may look.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt as _;

use symphony_config::Address;

/// The state of a socket that listens, as the kernel lists it.
const LISTENING: &str = "0A";
/// The longest command line that is shown, in characters.
const SHOWN_MAX: usize = 100;

/// The process that listens where `address` would, in words: `process 4711 (symphony frontend --config …)`. `None` if
/// it cannot be found: there is none any more, or it is another user's.
pub(crate) fn port_holder(address: &Address) -> Option<String> {
    let sockets = [("/proc/net/tcp", 8), ("/proc/net/tcp6", 32)];
    let inodes = sockets.into_iter().flat_map(|(file, digits)| {
        listening(&fs::read_to_string(file).unwrap_or_default(), address, digits).collect::<Vec<_>>()
    });
    inodes.into_iter().find_map(|inode| owner(&inode))
}

/// The inodes of sockets that listen on the port of `address`, at its host or at every address.
fn listening<'a>(table: &'a str, address: &'a Address, digits: usize) -> impl Iterator<Item = String> + 'a {
    // Four bytes, written as one number of this machine's byte order.
    let host = address.host().parse::<Ipv4Addr>().ok().map(|ip| format!("{:08X}", u32::from_ne_bytes(ip.octets())));
    let everywhere = "0".repeat(digits);
    let port = format!("{:04X}", address.port());
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (&[_, local, _, state, ..], inode) = (fields.as_slice(), *fields.get(9)?) else { return None };
        let (at, on) = local.split_once(':')?;
        // Of an address that is a name or of IPv6, the port has to do.
        let same_host = at == everywhere || host.as_ref().is_none_or(|host| at.ends_with(host.as_str()));
        (state == LISTENING && on == port && (same_host || address.is_wildcard())).then(|| inode.to_owned())
    })
}

/// The process that has this socket open.
fn owner(inode: &str) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut having = pids.filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| to.as_os_str().as_bytes() == socket.as_bytes())
    });
    let pid = having.next()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let shown: String = command.trim().chars().take(SHOWN_MAX).collect();
    Some(format!("process {pid} ({shown})"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_by_id_and_command() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::loopback(held.local_addr().unwrap().port());
        let holder = port_holder(&address).unwrap();
        assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
        let elsewhere: Address = format!("127.0.0.9:{}", address.port()).parse().unwrap();
        assert_eq!(port_holder(&elsewhere), None, "the same port of another address");
        drop(held);
        assert_eq!(port_holder(&address), None);
    }

    #[test]
    fn one_that_listens_everywhere_holds_every_address() {
        let held = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(port_holder(&Address::loopback(held.local_addr().unwrap().port())).is_some());
        // A machine may have no IPv6.
        let Ok(held) = TcpListener::bind("[::]:0") else { return };
        assert!(port_holder(&Address::loopback(held.local_addr().unwrap().port())).is_some());
    }
}
