"""In a browser: whatever strangers write into tables and links, no script of theirs runs in any view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccs
from ccs import results
from ccs.files import sha256
from ccs.ui.app import App
from ccs.ui.state import TABS
from tests.support import ui_sample
from tests.support.browser_page import CHROMIUM, MARKS, served, small_gallery

pytestmark = MARKS

ATTACKS = (
    "<script>window.ran='text'</script>",
    "<img src=x onerror=\"window.ran='img'\">",
    "<svg onload=\"window.ran='svg'\">",
    "\"><iframe srcdoc=\"<script>parent.ran='frame'</script>\">",
    "' onmouseover='window.ran=1' autofocus onfocus='window.ran=2' x='",
    "javascript:window.ran='link'",
    "{{window.ran='template'}}${window.ran='literal'}",
    "</textarea></style></script><script>window.ran='closed'</script>",
)
