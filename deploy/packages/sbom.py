#!/usr/bin/env python3
"""Prints what is in the program as a CycloneDX 1.5 document: every crate that it is built from on this machine, from `cargo metadata`
and the lock file, and ONNX Runtime, which lies beside it.

    deploy/packages/sbom.py ONNXRUNTIME-VERSION > symphony.cdx.json
"""
import datetime, json, os, pathlib, subprocess, sys, tomllib, uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cargo(*args):
    return subprocess.run([os.environ.get("CARGO", "cargo"), *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main():
    host = next(line.split()[1] for line in subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout.splitlines()
                if line.startswith("host:"))
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", host))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (program,) = [package for package in metadata["packages"] if package["name"] == "symphony"]
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in locked if "checksum" in one}

    # Not what only runs while the program is built, or in its tests.
    def needs(of):
        return [dep["pkg"] for dep in nodes[of]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]

    # A procedural macro runs in the compiler, and so does what it needs.
    macro = {id for id, package in packages.items() if any("proc-macro" in target["kind"] for target in package["targets"])}
    found, open_ = {program["id"]}, [program["id"]]
    while open_:
        for need in needs(open_.pop()):
            if need not in found and need not in macro:
                found.add(need)
                open_.append(need)

    def purl(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package):
        one = {"type": "application" if package is program else "library", "bom-ref": purl(package), "name": package["name"],
               "version": package["version"], "purl": purl(package)}
        if package.get("license"):
            one["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if (package["name"], package["version"]) in checksums:
            one["hashes"] = [{"alg": "SHA-256", "content": checksums[package["name"], package["version"]]}]
        return one

    runtime = f"pkg:pypi/onnxruntime@{sys.argv[1]}"
    others = sorted((packages[id] for id in found if id != program["id"]), key=lambda package: (package["name"], package["version"]))
    time = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, purl(program) + str(sorted(found)))}",
        "metadata": {"timestamp": datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                     "component": component(program)},
        "components": [component(package) for package in others]
        + [{"type": "library", "bom-ref": runtime, "name": "onnxruntime", "version": sys.argv[1], "purl": runtime, "licenses": [{"license": {"id": "MIT"}}]}],
        "dependencies": [{"ref": purl(packages[id]), "dependsOn": sorted(purl(packages[need]) for need in needs(id) if need in found)} for id in sorted(found)],
    }
    json.dump(bom, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
