"""The bar that commands show which take minutes."""

from __future__ import annotations

from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn


def progress() -> Progress:
    """How many steps of how many are done, and how long the rest will take."""
    return Progress(
        *Progress.get_default_columns()[:2], "{task.completed}/{task.total}", TimeElapsedColumn(), TimeRemainingColumn()
    )
