"""Check that the wheel in a folder works on its own: `python scripts/check_wheel.py dist`.

The wheel must contain only `ccs`. In an empty environment, where pip installs it with the extra that README
names (minutes), README's snippet must print the output shown below it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def top_level(wheel: Path) -> set[str]:
    """Return the names that a wheel installs into site-packages, without its metadata."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def main(folder: Path) -> None:
    """Check the only wheel in the folder. Exits with a message if something is wrong."""
    (wheel,) = folder.glob("*.whl")
    if (packages := top_level(wheel)) != {"ccs"}:
        sys.exit(f"error: {wheel.name} installs {', '.join(sorted(packages))}; expected only ccs.")
    version = wheel.name.split("-")[1]
    code, expected_output = re.findall(
        r"^```(?:python|text)\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "empty", with_pip=True, symlinks=True)
        bin_ = Path(place) / "empty" / "bin"

        def run(*command: str | Path) -> str:
            done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, text=True, check=True)
            return done.stdout

        run(bin_ / "python", "-m", "pip", "install", "--quiet", f"{wheel.resolve()}[data]")
        for command, wanted in (
            ((bin_ / "clip-ccs", "--version"), f"{version}\n"),
            ((bin_ / "python", "-c", code), expected_output),
        ):
            if (printed := run(*command)) != wanted:
                sys.exit(f"error: {command[0].name} printed {printed!r}; expected {wanted!r}.")
    print(f"{wheel.name}: installs only ccs, and works on its own.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
