"""A Postgres server of its own, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from kdsl.testing.ports import free_port

PASSWORD = "geheim-pg-4711"
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    if any(_program(name) is None for name in ("initdb", "postgres", "psql")):
        return "Postgres' programs are not installed (Debian: postgresql)"
    if os.geteuid() == 0 and _user() is None:
        return "Postgres does not run as root, and there is no user 'postgres'"
    return None


def _program(name: str) -> str | None:
    result = shutil.which(name)
    return result or next((str(place / name) for place in _PLACES if (place / name).is_file()), None)


def _user() -> str | None:
    import pwd

    return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "postgres"), None)


class Postgres:
    """A server on the loopback interface; a context manager.

    Args:
        settings: Settings of the server, as ``wal_level="logical"``.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kdsl-postgres-"))
        self._user = _user() if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._folder, self._user)
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", "kdsl", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync")
        program = _program("postgres")
        assert program is not None
        self.port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            **self._settings,
        }
        self._process = subprocess.Popen(
            [program, "-D", data, "-p", str(self.port), *(f"-c{name}={value}" for name, value in settings.items())],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            user=self._user,
        )
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)  # SIGTERM would wait until the last client has gone
        self._process.wait(120)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def execute(self, statements: str, database: str = "postgres") -> str:
        """Run SQL statements, each in a transaction of its own unless they say otherwise.

        Args:
            statements: The statements.
            database: The database in which they run.

        Returns:
            The rows of queries, a line each, with tabs between the values.
        """
        program = _program("psql")
        assert program is not None
        done = subprocess.run(
            [
                *(program, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator=\t"),
                *("-v", "ON_ERROR_STOP=1", f"postgresql://kdsl@127.0.0.1:{self.port}/{database}"),
            ],
            input=statements,
            capture_output=True,
            text=True,
            env={**os.environ, "PGPASSWORD": PASSWORD},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def lock(self, table: str) -> Iterator[None]:
        """Lock a table for everybody else while the body runs."""
        program = _program("psql")
        assert program is not None
        with subprocess.Popen(
            [program, "--no-psqlrc", "--quiet", f"postgresql://kdsl@127.0.0.1:{self.port}/postgres"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PGPASSWORD": PASSWORD},
        ) as session:
            assert session.stdin is not None
            assert session.stdout is not None
            session.stdin.write(f"BEGIN; LOCK TABLE {table};\n\\echo locked\n")
            session.stdin.flush()
            assert session.stdout.readline() == "locked\n"
            yield  # the end of the input ends the session, and its transaction

    def _run(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, cwd=self._folder, user=self._user, check=False
        )
        assert done.returncode == 0, done.stderr

    def _wait(self) -> None:
        ready = _program("pg_isready")
        assert ready is not None
        until = time.monotonic() + 120
        while subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode:
            assert self._process.poll() is None, "Postgres has ended"
            assert time.monotonic() < until, "Postgres does not answer"
            time.sleep(0.1)
