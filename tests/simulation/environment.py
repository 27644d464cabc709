"""Lets kdsl's modules use the virtual clock, actors instead of threads, and ids that follow from the seed."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

from tests.simulation.world import Actor, World

T = TypeVar("T")


class SimulatedTime:
    """The module ``time``; its clock is the world's, and that of the running process may be ahead of it.

    Threads of other tests have the real time.
    """

    def time(self) -> float:
        world = World.current
        return world.now + world.process.clock if world.is_here else time.time()

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def monotonic(self) -> float:
        world = World.current
        return world.now if world.is_here else time.monotonic()

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        world = World.current
        (world.sleep if world.is_here else time.sleep)(seconds)


class SimulatedLock:
    """A lock between the actors of a process."""

    def __init__(self) -> None:
        self._holder: Actor[Any] | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = World.current
        actor = world.actor
        if self._holder is not actor:
            if self._holder is not None and not blocking:
                return False
            if not world.wait(lambda: self._holder is None, None if timeout < 0 else timeout):
                return False
            self._holder = actor
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._holder, self._depth = None, 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedEvent:
    """An event between the actors of a process."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return World.current.wait(lambda: self._set, timeout)


class SimulatedCondition(SimulatedLock):
    """A condition between the actors of a process."""

    def __init__(self) -> None:
        super().__init__()
        self._notified = 0

    def wait(self, timeout: float | None = None) -> bool:
        before, depth, actor = self._notified, self._depth, self._holder
        self._holder, self._depth = None, 0
        world = World.current
        notified = world.wait(lambda: self._notified != before, timeout)
        world.wait(lambda: self._holder is None)
        self._holder, self._depth = actor, depth
        return notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        world = World.current
        until = None if timeout is None else world.now + timeout
        result = predicate()
        while not result and (until is None or until > world.now):
            self.wait(None if until is None else until - world.now)
            result = predicate()
        return result

    def notify_all(self) -> None:
        self._notified += 1

    notify = notify_all


class SimulatedThread:
    """A thread, which is an actor of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        del group, daemon
        self.name, self._call = name, (target, tuple(args), dict(kwargs or {}))
        self._actor: Actor[None] | None = None

    def run(self) -> None:
        target, args, kwargs = self._call
        if target is not None:
            target(*args, **kwargs)

    def start(self) -> None:
        world = World.current
        self._actor = world.spawn(world.process, self.name, self.run)

    def join(self, timeout: float | None = None) -> None:
        actor = self._actor
        assert actor is not None
        World.current.wait(lambda: actor.done, timeout)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.done


class SimulatedTimer(SimulatedThread):
    """A timer; it never fires, because what kdsl does in one is logging."""

    def __init__(self, interval: float, function: Callable[..., object], args: Iterable[Any] = ()) -> None:
        super().__init__(target=function, args=args)
        del interval

    daemon = True

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass


class SimulatedThreading:
    """The module ``threading``."""

    Thread, Lock, RLock, Event, Timer = SimulatedThread, SimulatedLock, SimulatedLock, SimulatedEvent, SimulatedTimer
    Condition = SimulatedCondition


class SimulatedFuture(Generic[T]):
    """The result of an actor."""

    def __init__(self, actor: Actor[T]) -> None:
        self._actor = actor

    def result(self, timeout: float | None = None) -> T:
        del timeout
        return self._actor.result()

    def done(self) -> bool:
        return self._actor.done


class SimulatedExecutor:
    """A pool of threads, in which each call is an actor of its own, which waits until a thread would be free."""

    def __init__(self, max_workers: int | None = None, *_: object, **__: object) -> None:
        self._threads = max_workers
        self._actors: list[Actor[Any]] = []

    def submit(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> SimulatedFuture[T]:
        world, threads = World.current, self._threads
        earlier = self._actors = [actor for actor in self._actors if not actor.done]

        def call() -> T:
            if threads is not None and len(earlier) >= threads:
                World.current.wait(lambda: sum(not actor.done for actor in earlier) < threads)
            return function(*args, **kwargs)

        actor = world.spawn(world.process, getattr(function, "__name__", "call"), call)
        self._actors = [*earlier, actor]
        return SimulatedFuture(actor)

    def map(self, function: Callable[..., T], *iterables: Iterable[Any]) -> Iterator[T]:
        futures = [self.submit(function, *args) for args in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, **_: object) -> None:
        if wait:
            for actor in self._actors:
                World.current.wait(lambda actor=actor: actor.done)  # type: ignore[misc]

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class SimulatedUuid:
    """The module ``uuid``, whose random ids follow from the run."""

    UUID = uuid.UUID

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=World.current.random.getrandbits(128), version=4)


class PerProcess:
    """A global variable of a module. Each simulated process has its own.

    Args:
        key: Its name.
        create: Creates its first value.
    """

    def __init__(self, key: Hashable, create: Callable[[], Any]) -> None:
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_create", create)

    def _value(self) -> Any:
        return World.current.process.value(self._key, self._create)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._value()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._value()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._value()[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._value()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value())

    def __len__(self) -> int:
        return len(self._value())


def _write_json(value: Any, *, indent: int | None = None, **options: Any) -> str:
    """Write JSON on one line; Python's encoder is slow with indentation."""
    del indent
    return json.dumps(value, **options)


_TIME = SimulatedTime()
_REPLACED: Sequence[tuple[object, object]] = (
    (time, _TIME),
    (threading, SimulatedThreading()),
    (threading.Thread, SimulatedThread),
    (threading.Event, SimulatedEvent),
    (threading.Timer, SimulatedTimer),
    (threading.Lock, SimulatedLock),
    (threading.Condition, SimulatedCondition),
    (time.monotonic, _TIME.monotonic),
    (uuid, SimulatedUuid()),
    (json, SimpleNamespace(**{**vars(json), "dumps": _write_json})),
    (concurrent.futures.ThreadPoolExecutor, SimulatedExecutor),
)


def kdsl_modules() -> list[ModuleType]:
    """The modules of kdsl that are loaded."""
    return [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "kdsl"]


@contextmanager
def simulate_environment(substitutes: Iterable[tuple[Any, str, Any]] = ()) -> Iterator[None]:
    """Give all loaded modules of kdsl the simulated clock, threads and ids, until the body ends.

    Args:
        substitutes: Further substitutes: the object whose attribute is replaced, the name of the attribute, the value.
    """
    from kdsl import retry

    undo: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    waits = retry.retry.__kwdefaults__
    assert waits is not None
    original_wait = waits["wait"]
    try:
        for owner, name, value in substitutes:
            replace(owner, name, value)
        simulated = {id(original): value for original, value in _REPLACED}
        for module in kdsl_modules():
            for name, value in list(vars(module).items()):
                if id(value) in simulated:
                    replace(module, name, simulated[id(value)])
        waits["wait"] = _TIME.sleep
        logging.disable()
        yield
    finally:
        logging.disable(logging.NOTSET)
        waits["wait"] = original_wait
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
