"""Whether the wheel in a folder works alone: `python scripts/check_wheel.py dist`.

It holds nothing but `ccs`, and in an empty environment, with the extra that README names and what pip fetches
for it (minutes), README's snippet prints what stands below it.
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
    """What it puts into site-packages, its own metadata apart."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def main(folder: Path) -> None:
    """Check the only wheel in the folder; ends with a sentence where something is wrong."""
    (wheel,) = folder.glob("*.whl")
    if (found := top_level(wheel)) != {"ccs"}:
        sys.exit(f"error: {wheel.name} installs {', '.join(sorted(found))}, not `ccs` alone.")
    version = wheel.name.split("-")[1]
    code, said = re.findall(
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
            ((bin_ / "python", "-c", code), said),
        ):
            if (printed := run(*command)) != wanted:
                sys.exit(f"error: Installed alone, {command[0].name} printed {printed!r}, not {wanted!r}.")
    print(f"{wheel.name}: installs `ccs` alone, and works alone.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
