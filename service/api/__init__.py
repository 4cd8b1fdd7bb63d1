"""The HTTP side of the service: the only part that knows of FastAPI."""
