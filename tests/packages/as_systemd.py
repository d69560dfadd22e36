#!/usr/bin/env python3
"""Runs a unit of `Type=notify` as systemd would, where systemd is not: its user, environment, limits, command and notifications.

    as_systemd.py UNIT ROOT LOG [--watchdog-s N]

UNIT is a file below ROOT (a folder with an installed system), in which the command runs by chroot. Waits for READY=1, prints
`ready` and then what else the process tells; ends as the process ends. SIGTERM and SIGHUP are passed on. What it does not do: the
sandbox (ProtectSystem= and so on), which `systemd-analyze verify` reads and only systemd applies.
"""
import os, pathlib, pwd, resource, signal, socket, subprocess, sys, threading


def settings(path):
    found, lines = {}, path.read_text().replace("\\\n", " ").splitlines()
    for line in lines:
        if "=" in line and not line.startswith(("#", ";", "[")):
            key, value = line.split("=", 1)
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def main():
    unit, root, log = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    of = settings(unit)
    user = next(line.split(":") for line in (root / "etc/passwd").read_text().splitlines() if line.startswith(of["User"][0] + ":"))
    uid, gid = int(user[2]), int(user[3])
    environment = {"PATH": "/usr/bin:/bin"}
    environment.update(pair.split("=", 1) for pair in of.get("Environment", []))
    for name in of.get("EnvironmentFile", []):
        file = root / name.lstrip("-/")
        if file.exists():
            lines = [line.strip() for line in file.read_text().splitlines()]
            environment.update(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        elif not name.startswith("-"):
            raise SystemExit(f"{name} is missing")
    for state in of.get("StateDirectory", [""])[0].split():
        folder = root / "var/lib" / state
        folder.mkdir(mode=int(of["StateDirectoryMode"][0], 8), exist_ok=True)
        os.chown(folder, uid, gid)
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"/run/notify-{os.getpid()}"
    told.bind(str(root) + name)
    os.chmod(str(root) + name, 0o666)
    environment["NOTIFY_SOCKET"] = name
    if of["Type"] != ["notify"]:
        raise SystemExit(f"Type is {of['Type']}")
    watchdog = float(sys.argv[sys.argv.index("--watchdog-s") + 1]) if "--watchdog-s" in sys.argv else float(of["WatchdogSec"][0])
    environment["WATCHDOG_USEC"] = str(int(watchdog * 1e6))

    def become():
        os.chroot(root)
        os.chdir("/")
        if "LimitNICE" in of:
            nice = 20 - int(of["LimitNICE"][0])
            try:
                resource.setrlimit(resource.RLIMIT_NICE, (nice, nice))
            except (PermissionError, ValueError):
                pass  # a sandbox without CAP_SYS_RESOURCE
        os.umask(int(of["UMask"][0], 8))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    process = subprocess.Popen(of["ExecStart"][0].split(), env=environment, preexec_fn=become, stdin=subprocess.DEVNULL,
                               stdout=open(log, "ab"), stderr=subprocess.STDOUT)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))

    def hear():
        signs = 0
        told.settimeout(watchdog)
        while True:
            try:
                words = told.recv(4096).decode()
            except TimeoutError:
                if signs and process.poll() is None:
                    print("watchdog: no sign of life", flush=True)
                    process.kill()
                    return
                continue
            for word in words.splitlines():
                if word == "READY=1":
                    print("ready", flush=True)
                elif word == "WATCHDOG=1":
                    signs += 1
                    if signs == 1:
                        print("alive", flush=True)
                elif not word.startswith("MONOTONIC_USEC"):
                    print(word, flush=True)

    threading.Thread(target=hear, daemon=True).start()
    code = process.wait()
    os.unlink(str(root) + name)
    print(f"ended {code}", flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
