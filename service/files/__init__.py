"""Whole files of texts, labelled or embedded: CSV, TSV, JSONL and Parquet in and out, in bounded memory."""
