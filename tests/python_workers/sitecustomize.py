"""Lets the Python processes that Spark starts for the tests start fast; each loads this, as the folder is on its path.

A process asks the fork server of the tests (`tests.python_workers.fork_server`) for a child that has imported PySpark
and kdsl already, gives it its own standard streams, and waits for it. Where there is none, it goes on itself.

Either way PySpark comes from where it is installed. Spark puts its own ``pyspark.zip`` first on the path, and what is
imported from a zip file is compiled in each process again, which takes about two seconds of CPU.
"""

from __future__ import annotations

import importlib
import os
import sys

if "-m" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("-m") + 1].startswith("pyspark."):
    sys.path[:] = [entry for entry in sys.path if not ("pyspark" in entry and entry.endswith(".zip"))]
    if address := os.environ.get("KDSL_TEST_FORK_SERVER"):
        importlib.import_module("fork_server").run_in_child(address)  # it stands beside this file
