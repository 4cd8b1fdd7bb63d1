"""Measurements that the documents quote, each a command."""
