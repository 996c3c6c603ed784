#!/bin/sh
# Lock the versions of dependencies: with hashes in locks/ for ./run, without in requirements.txt for the Space.
# Usage: scripts/lock.sh [--upgrade], with uv on the path. A weekly workflow proposes upgrades.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --quiet --no-header --no-annotate pyproject.toml "$@"; }
build=$(sed -n '/^requires = /s/.*\[\(.*\)\]/\1/p' pyproject.toml | tr -d '" ' | tr , '\n') # what builds the package
for extra in all test; do
    echo "$build" | compile - --extra $extra --universal --python-version 3.11 --generate-hashes \
        --output-file locks/$extra.txt "$@"
done
# No hashes: a Space installs further packages without hashes in the same call, and pip accepts hashes for all or none.
gradio=$(sed -n 's/^sdk_version: //p' README.md)
printf '%s\n' "gradio[oauth,mcp]==$gradio" "uvicorn>=0.14.0" "websockets>=10.4" spaces |
    compile - --extra all --universal --python-version 3.11 --output-file requirements.txt "$@"
