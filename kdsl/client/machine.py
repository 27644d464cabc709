"""What a process does for the clients that it makes: finds key files, reads Java's stores, serves tokens.

The translations of `kdsl.client.translate` are pure; what touches this machine is handed to them, and only when a
client is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kdsl.client.key_files import local_path, private_file
from kdsl.client.stores import Pem, Store, read_store
from kdsl.client.token_service import Endpoint, endpoint


class Machine(Protocol):
    """What a translation asks for; each method raises KdslError, without any secret in its text, where it fails."""

    def pem(self, store: Store) -> Pem:
        """Read a Java key store."""
        ...

    def path(self, location: str) -> str:
        """Where a key file is on this machine."""
        ...

    def file(self, name: str, text: str) -> str:
        """The path of a file of this process with a text."""
        ...

    def tokens(self, provider: str, options: Mapping[str, str]) -> Endpoint:
        """Where the tokens of a Python function can be asked for."""
        ...


class ThisMachine:
    """The machine of this process.

    Keys stay in memory. A chain of certificates, which librdkafka sends whole only from a file, goes into a folder that
    only this user may open and that goes with the process.
    """

    def pem(self, store: Store) -> Pem:
        """Read a Java key store; see `read_store`."""
        return read_store(store)

    def path(self, location: str) -> str:
        """Where a key file is on this machine; see `local_path`."""
        return local_path(location)

    def file(self, name: str, text: str) -> str:
        """A file of this process with a text."""
        return str(private_file(name, text.encode()))

    def tokens(self, provider: str, options: Mapping[str, str]) -> Endpoint:
        """Where the tokens of a Python function can be asked for; see `endpoint`."""
        return endpoint(provider, options)
