"""Who runs when: bounded admission, turns between requests, one worker thread a core.

A request is a list of tasks, one a text. Workers take one task of each waiting request in turn, so that a list of
thousands delays a single text by no more than the tasks already running. A task may split into parts (the windows
of a long text), which then run in their request's turns before the tasks behind them: what is begun is finished, and
what waits stays small. A task may also wish to share a run with others: the worker then takes those whose turn is next,
as far as they fit, whosoever they are, and leaves the other workers their part of what waits. Cancelling a request's
future drops all of it that has not run: a caller that left, or whose deadline passed, costs nothing more.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from service.errors import EngineError, OverloadedError, RequestError, ServiceError, UnavailableError
from service.logs import describe, get
from service.metrics import Metrics
from service.timings import Timings
from service.turns import Turns

log = get(__name__)

T = TypeVar("T")
Reason = Literal["deadline", "disconnect", "other"]
"""Why a request was given up."""

Task = Callable[[], Any]
"""What a worker calls for one text. It returns the text's outcome, a Split or a Share."""


CALM_SECONDS = 0.1
"""So long must no two tasks have met for the one that runs to be thought the only one."""

REST_SECONDS = 5.0
"""So long must nothing have run for the workers to be at rest."""


class Ticket(Future[T]):
    """A request's outcomes to come, and where its time goes."""

    def __init__(self, timings: Timings | None = None) -> None:
        super().__init__()
        self.timings = timings or Timings()
        self.reason: Reason = "other"

    def give_up(self, reason: Reason) -> None:
        """Cancel what has not run, and say why."""
        self.reason = reason
        self.cancel()


@dataclass(frozen=True, slots=True)
class Split:
    """A task's wish to be worked on in parts: `join` makes its outcome of theirs, in order, on a worker thread.

    A part that fails fails the task. Raises ValueError without parts.
    """

    parts: Sequence[Task]
    join: Callable[[list[Any]], Any]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("there is nothing to split into")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Runs up to `most` items at once, of sizes that make up `room` at most: `run` gives each its result, or a
    ServiceError. A larger item runs alone."""

    run: Callable[[list[Any]], Sequence[Any]]
    most: int
    room: int


@dataclass(frozen=True, slots=True)
class Share:
    """A task's wish to have an item run, with others' if they wait; `then` makes its outcome of the result."""

    run: Run
    item: Any
    size: int
    then: Callable[[Any], Any]


@dataclass(slots=True)
class _Work:
    """A task, and where its outcome goes: place `index` of `parent` (a list of outcomes still being filled).

    `units` are the runs it is thought to take, which it holds in the queue until it is taken. `text` is the place in
    its request of the text that it is, or is a part of.
    """

    task: Task
    units: int
    parent: _Pending
    index: int
    text: int
    queued: float


@dataclass(frozen=True, slots=True)
class _Shared:
    """A work whose item is still to be run."""

    work: _Work
    wish: Share


@dataclass(slots=True)
class _Pending:
    """Outcomes that are being collected, of a whole request or of one task's parts, all of the same `text`."""

    request: _Request
    text: int | None
    outcomes: list[Any]
    missing: int
    finish: Callable[[list[Any]], None]


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Request:
    future: Ticket[list[Any]]
    waiting: deque[_Work] = field(default_factory=deque)


class Scheduler:
    """Runs tasks on `workers` threads and admits requests while at most `capacity` runs are waiting, and no more than
    are thought to be done in `patience` seconds."""

    def __init__(
        self,
        workers: int,
        capacity: int,
        metrics: Metrics,
        patience: float = math.inf,
        at_rest: Callable[[], object] | None = None,
    ) -> None:
        """`at_rest` is called on a worker once after each time of work, when nothing has run for `REST_SECONDS`."""
        self.capacity = capacity
        self.patience = patience
        self.size = workers
        self._metrics = metrics
        # Re-entrant: a signal handler that drains may interrupt a thread that holds it.
        self._lock = threading.RLock()
        self._work_waits = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._turns: Turns[_Request] = Turns()
        self._waiting = 0
        self._running = 0
        self._alive = 0
        self._mean_seconds = 0.0
        self._met = -math.inf
        self._at_rest = at_rest
        self._ended: float | None = None
        self._open = False
        self._stopping = False
        self._given_up = False
        self._threads = [threading.Thread(target=self._work, name=f"worker-{i}", daemon=True) for i in range(workers)]
        metrics.queue_depth.set_function(lambda: self._waiting)
        metrics.running.set_function(lambda: self._running)
        metrics.workers.set_function(lambda: self.alive)

    def start(self) -> None:
        """Start the workers and open admission."""
        with self._lock:
            for thread in self._threads:
                thread.start()
                self._alive += 1
            self._ended = time.monotonic()
            self._open = True

    @property
    def alive(self) -> int:
        """How many workers can take work."""
        return self._alive

    @property
    def accepting(self) -> bool:
        """Whether a request would be considered at all."""
        return self._open and not self._stopping

    @property
    def calm(self) -> bool:
        """Whether what runs now is alone and has been for a while: the other workers' cores are likely to stay free.

        Of callers that keep several tasks coming, one may find itself alone for a moment; it would have to share.
        """
        return self._running == 1 and not self._waiting and time.monotonic() - self._met > CALM_SECONDS

    def submit(
        self, tasks: Sequence[Task], units: Sequence[int] | None = None, timings: Timings | None = None
    ) -> Ticket[list[Any]]:
        """Queue one request. Its future gives each task's outcome in order: its result, or a ServiceError.

        `units` says how many runs each task is thought to take if it splits; unsaid, each takes one. `timings` is
        told of the wait, and of whatever else the tasks tell it. Never waits.
        Raises UnavailableError while not accepting, OverloadedError when the runs do not fit the queue now,
        RequestError when they never would, ValueError without tasks.
        """
        if not tasks:
            raise ValueError("a request has at least one task")
        units = units or [1] * len(tasks)
        total = sum(units)
        if total > self.capacity:
            self._metrics.rejected.labels("too_much_work").inc()
            raise RequestError(
                f"the request takes about {total} runs and the queue holds {self.capacity}: send fewer texts at a time",
                code="too_much_work",
            )
        future: Ticket[list[Any]] = Ticket(timings)
        request = _Request(future)
        whole = _Pending(request, None, [None] * len(tasks), len(tasks), lambda outcomes: _resolve(future, outcomes))
        with self._lock:
            if not self.accepting:
                self._metrics.rejected.labels("unavailable").inc()
                raise UnavailableError("the service takes no work now: it is starting, stopping, or lost its workers")
            if refusal := self._refusal(total):
                self._metrics.rejected.labels("overloaded").inc()
                raise refusal
            self._enqueue(whole, tasks, units)
        # The request holds the future: if that held the request, both, and the model asked, would wait for the garbage
        # collector. What waits or runs holds the request for as long as there is anything to discard.
        asked = weakref.ref(request)

        def discard(done: Future[Any]) -> None:
            if done.cancelled() and (left := asked()):
                self._discard(left)

        future.add_done_callback(discard)
        return future

    def drain(self) -> None:
        """Close admission; what was admitted still runs."""
        with self._lock:
            self._open = False

    def stop(self, timeout: float) -> bool:
        """Drain, wait at most `timeout` seconds for the queue to empty, end the workers.

        True if nothing was left, and nothing given up since draining began but by its caller.
        """
        self.drain()
        with self._lock:
            idle = self._idle.wait_for(lambda: not (self._waiting or self._running), timeout)
            self._stopping = True
            self._work_waits.notify_all()
        self._fail_waiting()
        for thread in self._threads:
            if idle and thread.is_alive():
                thread.join(timeout=1.0)
        return idle and not self._given_up

    def _refusal(self, units: int) -> OverloadedError | None:
        """Why a request of so many runs is not admitted now. One that would be late is told so now, not late."""
        pace = self._mean_seconds / max(1, self.alive)
        excess = self._waiting + units - self.capacity
        if excess > 0:
            message = f"{self._waiting} runs are waiting and {self.capacity} may: {units} more do not fit"
            return OverloadedError(message, retry_after=max(1, math.ceil(excess * pace)))
        # In turns, each of its runs waits for one of every other request; in a press, turns can double that.
        ahead = min(self._waiting, units * len(self._turns))
        seconds = 2 * (ahead + units) * pace
        if ahead and seconds > self.patience:
            message = f"the answer would take about {seconds:.0f} seconds and may take {self.patience:g}"
            return OverloadedError(message, retry_after=max(1, math.ceil(seconds - self.patience)))
        return None

    def _enqueue(self, parent: _Pending, tasks: Sequence[Task], units: Sequence[int]) -> None:
        """Put tasks before what their request has waiting, and give it turns. Called with the lock held."""
        now = time.monotonic()
        waiting = parent.request.waiting
        if not waiting:
            self._turns.add(parent.request, now, begun=parent.text is not None)
        works = [
            _Work(task, unit, parent, index, index if parent.text is None else parent.text, now)
            for index, (task, unit) in enumerate(zip(tasks, units, strict=True))
        ]
        waiting.extendleft(reversed(works))
        self._waiting += sum(units)
        self._work_waits.notify(len(tasks))

    def _take(self) -> Callable[[], None] | None:
        """What a worker does next: a request's next task, or a rest; None when it is to end. Waits without polling."""
        with self._lock:
            while not self._work_waits.wait_for(lambda: self._turns or self._stopping, self._until_rest()):
                if self._until_rest() == 0.0:
                    self._ended = None
                    return self._rest
            if self._stopping:
                return None
            return partial(self._run, self._next())

    def _next(self) -> _Work:
        """The task whose turn it is. Called with the lock held, when there is one."""
        request = self._turns.take(time.monotonic())
        work = request.waiting.popleft()
        if not request.waiting:
            self._turns.remove(request)
        self._waiting -= work.units
        self._running += 1
        if self._waiting or self._running > 1:
            self._met = time.monotonic()
        return work

    def _another(self, taken: int) -> _Work | None:
        """One more task for a worker that has taken so many, unless what waits is the other workers' part."""
        with self._lock:
            if not self._turns or self._stopping or taken * self._alive >= taken + self._waiting:
                return None
            return self._next()

    def _until_rest(self) -> float | None:
        """Seconds until a rest is due; None while something runs, whose worker will see to it, or after a rest."""
        if self._at_rest is None or self._ended is None or self._running:
            return None
        return max(0.0, self._ended + REST_SECONDS - time.monotonic())

    def _rest(self) -> None:
        try:
            if self._at_rest is not None:
                self._at_rest()
        except Exception as error:  # noqa: BLE001 - whatever it is, the workers live on
            log.error("rest failed", error=describe(error))

    def _discard(self, request: _Request) -> None:
        """Drop what a cancelled request still has waiting."""
        if not self._open and request.future.reason == "other":
            self._given_up = True  # the caller is still there: it is the server that stops
        if dropped := {work.text for work in self._drop(request)}:
            self._metrics.dropped.labels(request.future.reason).inc(len(dropped))

    def _drop(self, request: _Request, text: int | None = None) -> list[_Work]:
        """Take out of the queue what waits of a request, or of one of its texts."""
        with self._lock:
            dropped = [work for work in request.waiting if text in (None, work.text)]
            if dropped:
                request.waiting = deque(work for work in request.waiting if text not in (None, work.text))
                self._waiting -= sum(work.units for work in dropped)
                if not request.waiting:
                    self._turns.remove(request)
                self._tell_if_idle()
        return dropped

    def _work(self) -> None:
        try:
            while (turn := self._take()) is not None:
                turn()
                # A thread that waits must not keep alive what it ran last: the model of it may have been unloaded.
                del turn
        finally:
            self._leave()

    def _leave(self) -> None:
        """A worker ends. After the last one's death nobody would ever answer what waits."""
        with self._lock:
            self._alive -= 1
            died = not self._stopping
            last = not self._alive
            if last:
                self._open = False
        if died:
            log.error("worker died", worker=threading.current_thread().name)
        if last:
            self._fail_waiting()

    def _run(self, work: _Work) -> None:
        began = time.monotonic()
        taken = [work]
        try:
            if share := self._begin(work):
                self._run_shared(share, taken)
        finally:
            with self._lock:
                self._ended = time.monotonic()
                for _ in taken:
                    self._mean_seconds += 0.05 * ((self._ended - began) / len(taken) - self._mean_seconds)
                self._running -= len(taken)
                self._tell_if_idle()

    def _begin(self, work: _Work) -> _Shared | None:
        """Call a task that was taken; None if it needs nothing more."""
        now = time.monotonic()
        self._metrics.queue_seconds.observe(now - work.queued)
        work.parent.request.future.timings.taken(work.queued, now)
        return self._answer(work, work.task)

    def _run_shared(self, first: _Shared, taken: list[_Work]) -> None:
        """Run an item with those of the tasks whose turn is next, which become `taken` too, as long as they fit."""
        run = first.wish.run
        together = [first]
        alone: list[_Shared] = []
        try:
            while not alone and len(together) < run.most and (work := self._another(len(taken))):
                taken.append(work)
                if shared := self._begin(work):
                    size = sum(one.wish.size for one in (*together, shared))
                    fits = shared.wish.run is run and size <= run.room
                    (together if fits else alone).append(shared)
        finally:
            # Also where a task that was to join ends this thread: the others are answered first.
            try:
                self._finish(together)
            finally:
                self._finish(alone)

    def _finish(self, together: list[_Shared]) -> None:
        """Run items at once, and give each work the outcome of its own."""
        if not together:
            return
        try:
            results = self._guarded(lambda: together[0].wish.run.run([one.wish.item for one in together]))
        except BaseException:  # it ends this thread: the callers are told before the thread is gone
            for one in together:
                self._settle(one.work, _died())
            raise
        for index, one in enumerate(together):
            result = results if isinstance(results, ServiceError) else results[index]
            failed = isinstance(result, ServiceError)
            self._settle(one.work, result if failed else self._guarded(partial(one.wish.then, result)))

    def _tell_if_idle(self) -> None:
        if not (self._running or self._waiting):
            self._idle.notify_all()

    def _answer(self, work: _Work, task: Task) -> _Shared | None:
        """Give a work what a task makes, its own or the join of its parts, unless that is still to be run."""
        try:
            outcome = self._guarded(task)
        except BaseException:  # it ends this thread: its caller is told before the thread is gone
            self._settle(work, _died())
            raise
        if isinstance(outcome, Share):
            return _Shared(work, outcome)
        self._settle(work, outcome)
        return None

    def _guarded(self, task: Task) -> Any:
        """A task's outcome, with its failure as a value: it is its own caller's alone."""
        try:
            return task()
        except ServiceError as error:
            # As a value it needs no place it was raised at, whose frames would keep the text and the model alive.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the workers live on
            log.error("task failed", error=describe(error))
            return EngineError("the text could not be run")

    def _settle(self, work: _Work, outcome: Any) -> None:
        if isinstance(outcome, Split):
            self._split(work, outcome)
            return
        # A part that fails fails its text: those that still wait would be run for nothing.
        failed_part = isinstance(outcome, ServiceError) and work.parent.text is not None
        for one in [work, *(self._drop(work.parent.request, work.text) if failed_part else ())]:
            self._place(one, outcome)

    def _place(self, work: _Work, outcome: Any) -> None:
        pending = work.parent
        with self._lock:
            pending.outcomes[work.index] = outcome
            pending.missing -= 1
            complete = pending.missing == 0
        if complete:
            pending.finish(pending.outcomes)

    def _split(self, work: _Work, split: Split) -> None:
        request = work.parent.request

        def finish(outcomes: list[Any]) -> None:
            failed = next((outcome for outcome in outcomes if isinstance(outcome, ServiceError)), None)
            if failed:
                self._settle(work, failed)
            else:
                self._answer(work, lambda: split.join(outcomes))

        parts = _Pending(request, work.text, [None] * len(split.parts), len(split.parts), finish)
        with self._lock:
            if not (self._stopping or request.future.done()):
                self._enqueue(parts, split.parts, [1] * len(split.parts))
                return
        if request.future.cancelled() and work.parent.text is None:
            self._metrics.dropped.labels(request.future.reason).inc()
        _fail(request.future)

    def _fail_waiting(self) -> None:
        with self._lock:
            requests = self._turns.clear()
            for request in requests:
                request.waiting.clear()
            self._waiting = 0
            self._tell_if_idle()
        for request in requests:
            _fail(request.future)


def _died() -> EngineError:
    return EngineError("the worker died while it ran this text")


def _resolve(future: Future[list[Any]], outcomes: list[Any]) -> None:
    with suppress(InvalidStateError):  # the caller left in the meantime
        future.set_result(outcomes)


def _fail(future: Future[list[Any]]) -> None:
    with suppress(InvalidStateError):  # the caller left, or was told already
        future.set_exception(UnavailableError("the service stopped before it could answer"))
