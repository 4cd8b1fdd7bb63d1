"""A sentiment service: a BERT classifier through ONNX Runtime on the CPU, behind a REST interface."""

import os
from importlib.metadata import version

__version__ = version("sentiment-service")

# Read by ONNX Runtime when it is loaded: its Linux builds (1.32 at least) otherwise keep a database of events below the
# home folder and send it to their maker. Its own disable_telemetry_events() comes too late for the database.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
