"""What a script found, with where and of what: all of it (--out), and the figures of performance.md (--figures)."""

import datetime
import json
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).parent.parent


def add_arguments(parser):
    """The options that say where results go."""
    parser.add_argument("--out", type=pathlib.Path, help="everything, as JSON")
    parser.add_argument("--machine", default=processor(), help="as performance.md calls it")
    parser.add_argument("--figures", type=pathlib.Path, help="what `cargo xtask figures --measured` takes")


def processor():
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def commit():
    """The last commit of this tree; `-dirty` behind it if more than pages and figures was changed since, and no figure may come of that."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("-dirty" if changed else "")


def write(args, results, figures=None):
    """`figures`: values by what the tables call them, both as the page shows them."""
    origin = {"machine": args.machine, "commit": commit(), "date": datetime.date.today().isoformat()}
    if args.out:
        args.out.write_text(json.dumps(origin | {"results": results}, indent=1) + "\n", encoding="utf-8")
    if figures is not None and args.figures:
        rows = [{"what": what, "value": value} | origin for what, value in figures.items()]
        args.figures.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
