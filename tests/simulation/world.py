"""One simulated run: actors that take turns, a virtual clock, requests that fail, and processes that die.

An actor is a greenlet that runs kdsl's code. Wherever the code would wait for something outside of its process, a model
calls `World.step`: there another actor may go on, or the process may die. Nothing else switches between actors, so a
run follows from its decisions alone.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from threading import get_ident
from typing import Any, Generic, NoReturn, TypeVar

from greenlet import getcurrent, greenlet

from tests.simulation.decisions import Decisions

T = TypeVar("T")
_START = 1_750_000_000.0
_STEPS = 200_000
_RATES = (0.0, 0.0, 0.002, 0.01, 0.05)


class Killed(BaseException):
    """The process of the running actor is dead; every step raises it, so what cleans up has no effect."""


class ViolationError(Exception):
    """What must hold does not hold. Every other exception that leaves a scenario is a failure, too."""


class Process:
    """A process: a driver, or a worker.

    Attributes:
        name: Its name in stories.
        alive: Whether it lives.
        values: What stands for the global variables of its modules.
        clock: How many seconds its clock is ahead of the world's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.values: dict[Hashable, Any] = {}
        self.clock = 0.0

    def value(self, key: Hashable, create: Callable[[], T]) -> T:
        """The value of a global variable of this process, which is created when it is first used."""
        if key not in self.values:
            self.values[key] = create()
        result: T = self.values[key]
        return result


class Actor(Generic[T]):
    """A thread of a process.

    Attributes:
        process: Its process.
        name: Its name in stories.
        done: Whether it has ended.
        error: What it ended with, if that was an exception; `Killed` if its process died.
    """

    def __init__(self, world: World, process: Process, name: str, function: Callable[[], T]) -> None:
        self.process, self.name = process, name
        self.done = False
        self.error: BaseException | None = None
        self._result: T | None = None
        self._world, self._function = world, function
        self.greenlet = greenlet(self._run, world.scheduler)
        self.ready: Callable[[], bool] | None = None
        self.wake_at: float | None = None

    def _run(self) -> None:
        try:
            self._world.check_alive(self)
            self._result = self._function()
        except BaseException as e:  # noqa: BLE001
            self.error = e
        self.done = True

    def result(self) -> T:
        """Wait until it has ended; return what its function returned, or raise its exception."""
        self._world.wait(lambda: self.done)
        if isinstance(self.error, Killed):
            self._world.check_alive()
            raise ConnectionError(f"{self.name} has died")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]


class World:
    """The state of one run outside of the models.

    Args:
        decisions: The decisions.
        tells: Whether the story is kept.

    Attributes:
        decisions: The decisions.
        now: The time in seconds since 1970.
        story: What happened, line by line.
        events: How often each event has happened, by kind and place: ``("kill", step)`` and so on.
        random: Random numbers for values that matter to nobody, such as ids. They are the same in every run.
        calm: Whether no more faults happen; scenarios set it for the last start, which must come to its end.
    """

    current: World
    """The world that runs now."""

    def __init__(self, decisions: Decisions, *, tells: bool = False) -> None:
        self.decisions = decisions
        self.now = _START
        self.story: list[str] = []
        self.events: Counter[tuple[str, str]] = Counter()
        self.pairs: set[tuple[tuple[str, str], tuple[str, str]]] = set()
        self.random = random.Random(0)
        self.calm = False
        self.scheduler = getcurrent()
        self._thread = get_ident()
        self._tells = tells
        self._actors: list[Actor[Any]] = []
        self._running: Actor[Any] | None = None
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._last_event: tuple[str, str] | None = None
        World.current = self
        # Each run has its own rates, so that some are nearly calm and others are a storm.
        self._switches, self._kills, self._faults, self._delays = (
            _RATES[decisions.choose(len(_RATES))] for _ in range(4)
        )
        self._switches = max(self._switches, 0.02)

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that runs the world."""
        return get_ident() == self._thread

    @property
    def actor(self) -> Actor[Any]:
        """The running actor."""
        assert self._running is not None
        return self._running

    @property
    def process(self) -> Process:
        """The process of the running actor."""
        assert self._running is not None
        return self._running.process

    def tell(self, text: str, *values: object) -> None:
        """Add a line to the story.

        Args:
            text: The line, with ``%s`` for values.
            *values: The values.
        """
        if self._tells:
            who = f"{self._running.process.name}/{self._running.name}" if self._running else "world"
            self.story.append(f"{self.now - _START:10.3f} {who:24} {text % values if values else text}")

    def note(self, kind: str, place: str) -> None:
        """Count an event, and that it came after the one before it."""
        event = (kind, place)
        self.events[event] += 1
        if self._last_event is not None:
            self.pairs.add((self._last_event, event))
        self._last_event = event

    # Actors

    def run(self, function: Callable[[], None]) -> None:
        """Run a scenario, which is an actor of its own, to its end; raise its exception."""
        main = self.spawn(Process("scenario"), "main", function)
        try:
            self._schedule(main)
        finally:
            for actor in self._actors:
                actor.process.alive = False
            self._unwind()
        if main.error is not None:
            raise main.error

    def spawn(self, process: Process, name: str, function: Callable[[], T]) -> Actor[T]:
        """Start an actor; it runs when another one makes a step."""
        actor = Actor(self, process, name, function)
        self._actors.append(actor)
        return actor

    def kill(self, process: Process) -> None:
        """End a process: none of its actors has an effect any more."""
        if process.alive:
            process.alive = False
            self.tell("%s dies", process.name)

    def check_alive(self, actor: Actor[Any] | None = None) -> None:
        """Raise `Killed` if the process of the running actor is dead."""
        actor = actor or self._running
        if actor is not None and not actor.process.alive:
            raise Killed

    def step(self, place: str) -> None:
        """Let other actors go on, or the process of this one die, at a place in the code."""
        if self._running is None:  # what is left of a run is cleaned up
            return
        process = self._running.process
        if not process.alive:
            raise Killed
        if self._kills and not self.calm and process.name != "scenario" and self.decisions.happens(self._kills):
            self.note("kill", place)
            self.kill(process)
            raise Killed
        if len(self._actors) > 1 and self.decisions.happens(self._switches):
            self._switch()

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something is true, for some seconds at most; return whether it is."""
        self.check_alive()
        if ready():
            return True
        actor = self._running
        assert actor is not None
        actor.ready, actor.wake_at = ready, None if timeout is None else self.now + timeout
        self._switch()
        actor.ready = actor.wake_at = None
        return ready()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        self.wait(_never, max(0.0, seconds))

    def call_later(self, seconds: float, effect: Callable[[], None]) -> None:
        """Do something after some seconds, whoever lives then; it must not make steps."""
        self._count += 1
        heapq.heappush(self._later, (self.now + seconds, self._count, effect))

    def request(
        self,
        place: str,
        effect: Callable[[], T],
        fail: Callable[[str], NoReturn] | None = None,
        *,
        late: bool = False,
    ) -> T:
        """Make a request: a step, its effect, and another step.

        Args:
            place: The name of the request, for stories and counts.
            effect: What happens where the request arrives.
            fail: Raises the error of a request that was not answered; None if that cannot happen. Its argument says
                what really happened: ``lost`` or ``done``.
            late: Whether an unanswered request may arrive later.
        """
        self.step(place)
        fault = 0
        if fail is not None and self._faults and not self.calm:
            fault = self.decisions.choose(3 + late, self._faults)
        if fault == 1:
            self.note("lost", place)
            self.tell("%s: the request is lost", place)
            assert fail is not None
            fail("lost")
        if fault == 3:
            self.note("late", place)
            self.tell("%s: the request is not answered, and arrives later", place)
            self.call_later(0.5 * 4 ** self.decisions.choose(6), lambda: self._do_late(place, effect))
            assert fail is not None
            fail("lost")
        self.tell("%s", place)
        result = effect()
        if fault == 2:
            self.note("unanswered", place)
            self.tell("%s: the answer is lost", place)
            assert fail is not None
            fail("done")
        if self._delays and not self.calm and self.decisions.happens(self._delays):
            self.note("slow", place)
            self.sleep(0.5 * 4 ** self.decisions.choose(6))
        self.step(f"after {place}")
        return result

    def look(self, place: str, effect: Callable[[], T], fail: Callable[[str], NoReturn] | None = None) -> T:
        """Make a request that changes nothing; the arguments are those of `request`."""
        self.step(place)
        if fail is not None and self._faults and not self.calm and self.decisions.happens(self._faults):
            self.note("lost", place)
            self.tell("%s: no answer", place)
            fail("lost")
        self.tell("%s", place)
        return effect()

    def _do_late(self, place: str, effect: Callable[[], object]) -> None:
        """Let the effect of a request happen late; its error is nobody's."""
        self.tell("%s arrives late", place)
        try:
            effect()
        except Exception as e:  # noqa: BLE001
            self.tell("%s: %s", place, e)

    # The scheduler

    def _schedule(self, main: Actor[Any]) -> None:
        """Run actors until the main one has ended."""
        current = main
        for _ in range(_STEPS):
            self._running = current
            current.greenlet.switch()
            if current.done:
                self._actors.remove(current)
                if current is main:
                    return
            current = self._choose_next(current)
        raise ViolationError("the run does not end")

    def _choose_next(self, current: Actor[Any]) -> Actor[Any]:
        """Choose the actor that goes on; move the clock if none can."""
        while True:
            able = self._able()
            if able:
                if len(able) > 1 and current in able:  # one that has made a step lets another one go on
                    able.remove(current)
                return able[self.decisions.choose(len(able)) if len(able) > 1 else 0]
            times = [actor.wake_at for actor in self._actors if actor.wake_at is not None]
            if self._later:
                times.append(self._later[0][0])
            if not times:
                raise ViolationError(f"nothing goes on: {', '.join(actor.name for actor in self._actors)}")
            self.now = max(self.now, min(times))
            while self._later and self._later[0][0] <= self.now:
                self._running = None
                heapq.heappop(self._later)[2]()

    def _able(self) -> list[Actor[Any]]:
        """The actors that can go on. Dead ones go on, too, to their end."""
        now = self.now
        return [
            actor
            for actor in self._actors
            if (ready := actor.ready) is None
            or not actor.process.alive
            or (actor.wake_at is not None and actor.wake_at <= now)
            or (ready is not _never and ready())
        ]

    def _switch(self) -> None:
        """Let the scheduler choose who goes on, and come back when this actor is chosen."""
        actor = self._running
        self.scheduler.switch()
        self._running = actor
        self.check_alive()

    def _unwind(self) -> None:
        """Let all actors end, so that no greenlet is left in the middle of its code."""
        for actor in self._actors:
            self._running = actor
            for _ in range(100):
                if actor.greenlet.dead or actor.done:
                    break
                actor.greenlet.switch()
        self._actors.clear()
        self._running = None


def _never() -> bool:
    return False


def shrink(fails: Callable[[Sequence[int]], bool], decisions: Sequence[int]) -> list[int]:
    """Find few decisions other than 0 with which a run still fails.

    Args:
        fails: Whether a run with some decisions, and 0 after them, fails in the same way.
        decisions: Those of a run that fails.
    """
    best = list(decisions)
    while best and best[-1] == 0:
        best.pop()
    size = len(best)
    while size >= 1:
        changed, start = False, 0
        while start < len(best):
            end = min(start + size, len(best))
            if any(best[start:end]):
                tried = [*best[:start], *[0] * (end - start), *best[end:]]
                while tried and tried[-1] == 0:
                    tried.pop()
                if fails(tried):
                    best, changed = tried, True
            start = end
        size = size if changed and size > 1 else size // 2
    for at, choice in enumerate(best):
        for smaller in range(1, choice):
            tried = [*best[:at], smaller, *best[at + 1 :]]
            if fails(tried):
                best = tried
                break
    return best
