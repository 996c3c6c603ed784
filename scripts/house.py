"""How large the house is: prints lines and modules of each room, and the words of README."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    names = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).split()
    lines = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in names}
    for part in ("ccs", "tests", "research", "benchmarks", "scripts"):
        own = {name: count for name, count in lines.items() if name.startswith(f"{part}/")}
        print(f"{part:24s} {sum(own.values()):7,d} lines {len(own):4d} modules")
    rooms, modules = Counter[str](), Counter[str]()
    for name, count in lines.items():
        if name.startswith("ccs/"):
            rooms[str(Path(name).parent)] += count
            modules[str(Path(name).parent)] += 1
    for room, count in sorted(rooms.items()):
        print(f"  {room:22s} {count:7,d} lines {modules[room]:4d} modules")
    words = (ROOT / "README.md").read_text("utf-8").split("---\n", 2)[-1].split()
    print(f"{'README.md':24s} {len(words):7,d} words")


if __name__ == "__main__":
    main()
