"""A MariaDB server for tests, started by the programs of the distribution (Debian: ``apt-get install mariadb-server``).

It listens on the loopback interface, asks for a password, and keeps its files in a folder that is removed at the end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kdsl.testing.ports import free_port

USER = "kdsl"
PASSWORD = "geheim-my-4711"
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")


def missing() -> str | None:
    """Why there can be no server here; None where there can."""
    if any(_program(name) is None for name in ("mariadb-install-db", "mariadbd", "mariadb")):
        return "MariaDB's programs are not installed (Debian: mariadb-server)"
    if os.geteuid() == 0 and _user() is None:
        return "MariaDB does not run as root, and there is no user 'mysql'"
    return None


def _program(name: str) -> str | None:
    result = shutil.which(name)
    return result or next((f"{place}/{name}" for place in _PLACES if Path(place, name).is_file()), None)


def _user() -> str | None:
    return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "mysql"), None)


class MariaDb:
    """A server on the loopback interface; a context manager."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="kdsl-mariadb-"))
        self._user = _user() if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._folder, self._user)
        data, self._socket = f"{self._folder}/data", f"{self._folder}/socket"
        first = self._folder / "first.sql"
        first.write_text(
            f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        first.chmod(0o644)
        self._run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db")
        program = _program("mariadbd")
        assert program is not None
        self.port = free_port()
        self._process = subprocess.Popen(
            [
                *(program, "--no-defaults", f"--datadir={data}", f"--socket={self._socket}", f"--port={self.port}"),
                *("--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"),
                *("--character-set-server=utf8mb4", "--default-time-zone=+05:30", f"--init-file={first}"),
            ],
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
        self._process.terminate()
        self._process.wait(120)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The JDBC address of the server, for MySQL's driver."""
        return f"jdbc:mysql://127.0.0.1:{self.port}/"

    def execute(self, statements: str) -> str:
        """Run SQL statements.

        Returns:
            The rows of queries, a line each, with tabs between the values.
        """
        done = self._client(statements)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _client(self, statements: str) -> subprocess.CompletedProcess[str]:
        program = _program("mariadb")
        assert program is not None
        return subprocess.run(
            [
                *(program, "--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"),
                *(f"--user={USER}", "--host=127.0.0.1", f"--port={self.port}"),
            ],
            input=statements,
            capture_output=True,
            text=True,
            env={**os.environ, "MYSQL_PWD": PASSWORD},
            check=False,
        )

    def _run(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, cwd=self._folder, user=self._user, check=False
        )
        assert done.returncode == 0, done.stderr

    def _wait(self) -> None:
        until = time.monotonic() + 120
        while self._client("SELECT 1").returncode:
            assert self._process.poll() is None, "MariaDB has ended"
            assert time.monotonic() < until, "MariaDB does not answer"
            time.sleep(0.1)
