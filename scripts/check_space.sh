#!/bin/sh
# Check the Space in a fresh environment with only requirements.txt: app.py serves its page, a visitor opens a view, two
# processes analyze a model, and a small rehearsal of the paper's study runs on local servers. Then run pip-audit if pypi.org
# is reachable; a package that it can't look up is a failure. Usage: scripts/check_space.sh [FOLDER]
# FOLDER (default: a temporary one) keeps the environment, so that a second run installs only new packages.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

[ -x "$folder/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt

# A copy of the tracked files only, as the Space gets it.
rm -rf "$folder/space"
mkdir "$folder/space"
git ls-files -z app.py batch ccs precomputed requirements.txt README.md NOTICE | xargs -0 tar cf - | tar xf - -C "$folder/space"
# The visitor, and the servers of the rehearsal.
git ls-files -z scripts/rehears* tests/support | xargs -0 tar cf - | tar xf - -C "$folder/space"

rm -rf "$folder/two"
cd "$folder/space"
env -u PYTHONPATH -u CCS_RESULTS -u CCS_MODEL "$folder/venv/bin/python" - <<'PYTHON'
import subprocess, sys, time, urllib.request

port = 7987
server = subprocess.Popen([sys.executable, "app.py", "--port", str(port)])
try:
    for _ in range(600):
        if server.poll() is not None:
            sys.exit("app.py ended before it served the page")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            break
        except OSError:
            time.sleep(0.5)
    from tests.support.visitor import Visitor

    with Visitor(f"http://127.0.0.1:{port}/") as visitor:
        for _ in range(60):  # until the model is loaded
            page_text = visitor.open(model="organism", tab="classify", ablate="L7.H1")["main"]
            if "probability" in page_text:
                break
            time.sleep(1)
    assert "probability" in page_text, page_text[:1000]
    print("The Space starts and answers with requirements.txt alone.")
finally:
    server.terminate()
    server.wait()
PYTHON
"$folder/venv/bin/python" -m torch.distributed.run --standalone --nproc_per_node 2 \
    -m batch.compute --model organism --max-images 64 --suite none --out "$folder/two"
# The servers' package, installed last: everything above must run without it.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pytest-httpserver>=1.1"
env -u PYTHONPATH -u CCS_DATA "$folder/venv/bin/python" -m scripts.rehearse --small

cd "$root"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9"
if "$folder/venv/bin/python" -c 'import urllib.request as r; r.urlopen("https://pypi.org/pypi/pip/24.0/json", timeout=10)' 2>/dev/null; then
    "$folder/venv/bin/python" -m pip_audit --strict --path "$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
else
    echo "pip-audit was skipped: pypi.org does not serve the JSON of releases here." >&2
fi
