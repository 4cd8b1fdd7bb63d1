"""How a model is made: read data, fine-tune, export, quantize, verify."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as service/__init__.py says
