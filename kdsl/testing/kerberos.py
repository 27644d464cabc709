"""A Kerberos realm for tests: MIT's own KDC, from Debian's packages, in a folder of its own.

It needs ``krb5kdc``, ``kdb5_util`` and ``kadmin.local`` (Debian: ``apt-get install krb5-kdc krb5-admin-server``; tests
with ``kinit`` also ``krb5-user``), but no privileges: it uses a free port of the loopback interface.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from kdsl.retry import Deadline, retry
from kdsl.testing.errors import LocalKafkaError
from kdsl.testing.folders import read_tail
from kdsl.testing.ports import answers, free_port

REALM = "KDSL.TEST"
SERVICE = "kafka"

_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_FIX = "install them, on Debian and Ubuntu: apt-get install krb5-kdc krb5-admin-server krb5-user"


def missing_programs() -> list[str]:
    """List the programs of a KDC that are missing on this machine."""
    return [name for name in _PROGRAMS if _program(name) is None]


class Realm:
    """A KDC with its principals and keytabs.

    Args:
        folder: The folder of all files, created if it is missing; only this user may open it then.

    Raises:
        OSError: The folder cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder; nothing is started, and no file is written."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }

    @property
    def config(self) -> Path:
        """The krb5.conf of clients and brokers."""
        return self._folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which ``kinit`` finds the realm."""
        return dict(self._environment)

    def start(self, mark: str) -> None:
        """Create the realm, unless the folder has it already, start its KDC on a free port, and wait until it answers.

        The configuration of clients and of the KDC is written in any case.

        Args:
            mark: The process's first argument, by which a watchdog knows it.

        Raises:
            LocalKafkaError: A program is missing or fails, no port is free, or the KDC does not answer within 20 s; in
                the last case `stop` ends it.
        """
        missing = missing_programs()
        if missing:
            raise LocalKafkaError(f"Kerberos needs the programs {', '.join(missing)} of MIT's KDC; {_FIX}")
        port, folder = free_port(set()), self._folder
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n",
            encoding="utf-8",
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/kadm5.acl\n  supported_enctypes = aes256-cts:normal\n }}\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n default = FILE:{folder}/kdc.log\n",
            encoding="utf-8",
        )
        if not (folder / "principal").exists():
            self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", "not-a-secret")
        self._process = subprocess.Popen(
            [mark, "-n", "-r", REALM, "-P", str(folder / "pid")],
            executable=_program("krb5kdc"),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process = self._process
        retry(lambda _: answers(port) or process.poll() is not None, bool, Deadline(20), pause=0.02)
        if not answers(port):
            raise LocalKafkaError(f"the KDC does not start; the end of its log:\n{read_tail(folder / 'kdc.log')}")

    def keytab(self, *principals: str) -> Path:
        """Add principals (without the realm) with random keys, write their keytab, and return its path.

        If there is a keytab of the first principal already, its path is returned, and nothing is done.

        Raises:
            LocalKafkaError: Kerberos' program fails, or creates no keytab.
        """
        path = self._folder / f"{principals[0].replace('/', '-')}.keytab"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            for principal in principals:
                self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
                self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {unfinished} {principal}")
            if not unfinished.exists():
                raise LocalKafkaError(f"kadmin.local created no keytab for {principals[0]!r}")
            unfinished.rename(path)
        return path

    @property
    def pid(self) -> int:
        """The process id of the running KDC; AssertionError if it does not run."""
        assert self._process is not None
        return self._process.pid

    def disown(self) -> None:
        """Let the KDC, if it runs, outlive this process, and forget it, so that `stop` does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # this process does not wait for it

    def stop(self) -> None:
        """Kill the KDC, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _run(self, name: str, *arguments: str) -> None:
        """Run a program of the KDC, which must be installed, and wait for its end."""
        program = _program(name)
        assert program is not None
        done = subprocess.run([program, *arguments], env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LocalKafkaError(f"{name} failed: {(done.stdout + done.stderr).strip()[-300:]}")


def _program(name: str) -> str | None:
    """Find a program of Kerberos on the PATH or in the folders of system programs; None if it is missing."""
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/opt/krb5/sbin"]
    return shutil.which(name, path=os.pathsep.join(folders))
