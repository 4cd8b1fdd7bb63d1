"""How far a file is, for whoever watches a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from service.files.run import Progress


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Rows a second, once there are some."""
        return Text(f"{task.speed:.0f} rows/s" if task.speed else "")


@contextmanager
def shown() -> Iterator[Progress]:
    """Tell of progress on standard error if it is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    console = Console(stderr=True)
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("looking through the input", total=None)
        yield lambda done, total: bar.update(task, description="rows", completed=done, total=total)
