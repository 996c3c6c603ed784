"""Tables of results: their schema, one file (table), one model or many (store), and stored searches.

A table is a pandas frame:

    >>> from ccs import results
    >>> results.read_all(results.PRECOMPUTED, "").models["organism"].table("scores").columns[:3].to_list()
    ['model', 'weights', 'layer']
"""

from ccs.results.store import MANIFEST_FILE as MANIFEST_FILE
from ccs.results.store import STAGES as STAGES
from ccs.results.store import Collection as Collection
from ccs.results.store import Results as Results
from ccs.results.store import default_folder as default_folder
from ccs.results.store import folder_name as folder_name
from ccs.results.store import load as load
from ccs.results.store import read as read
from ccs.results.store import read_all as read_all
from ccs.results.store import read_manifest as read_manifest
from ccs.results.store import write_manifest as write_manifest
from ccs.results.table import PRECOMPUTED as PRECOMPUTED
from ccs.results.table import read_table as read_table
from ccs.results.table import write_table as write_table
