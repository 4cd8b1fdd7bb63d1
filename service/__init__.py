"""A sentiment service: a BERT classifier through ONNX Runtime on the CPU, behind a REST interface."""

from importlib.metadata import version

__version__ = version("sentiment-service")
