"""Writes requirements.txt and requirements/{pay,dev}.txt anew from the `.in` files, with hashes.

The resolver (uv) lives in a virtual environment of its own, so that it is no dependency.
`lock.py --upgrade` takes the newest allowed versions instead of keeping those already locked.
"""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "var" / "uv"
# Index addresses differ from machine to machine and don't belong into the lock.
COMPILE = ["pip", "compile", "--python-version", "3.11", "--generate-hashes"]
COMPILE += ["--no-emit-index-url", "--no-header", "--quiet"]


def main(arguments: list[str]) -> None:
    uv = install_uv()
    lock = [uv, *COMPILE, *arguments, "-o"]
    subprocess.run([*lock, "requirements.txt", "requirements.in"], cwd=ROOT, check=True)
    for name, base in (("pay", "requirements.txt"), ("dev", "requirements/pay.txt")):
        files = [f"requirements/{name}.txt", f"requirements/{name}.in", "-c", base]
        subprocess.run([*lock, *files], cwd=ROOT, check=True)


def install_uv() -> str:
    if not (HOME / "bin" / "uv").exists():
        venv.create(HOME, clear=True, with_pip=True)
        command = [str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
        subprocess.run(command, check=True)
    return str(HOME / "bin" / "uv")


if __name__ == "__main__":
    main(sys.argv[1:])
