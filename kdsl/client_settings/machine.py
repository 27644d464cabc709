"""What a process does for the clients that it creates: finds key files, reads Java's stores, creates tokens.

The translations of `kdsl.client_settings.to_librdkafka` are pure. Access to this machine is passed to them, and only
when a client is created.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kdsl.client_settings.key_files import find_file, read_file, write_private_file
from kdsl.client_settings.stores import read_store
from kdsl.client_settings.token_callback import TokenCallback

_first_tokens: dict[tuple[int, TokenCallback], float] = {}
"""By process and callback, when the token ends that was created to find out whether that works (seconds since 1970)."""


class Machine:
    """What a translation may ask of this machine. Each method raises KdslError or OSError, without a secret in it.

    Keys stay in memory, except stores and keytabs that are fetched for Java, which reads files. A chain of
    certificates, which librdkafka sends completely only from a file, goes into a folder that only this user may open.
    """

    read_store = staticmethod(read_store)
    find_file = staticmethod(find_file)
    read_file = staticmethod(read_file)

    def write_file(self, name: str, text: str) -> str:
        """Write a file that only this user may read, for this process, and return its path."""
        return str(write_private_file(name, text.encode()))

    def create_token_callback(
        self, provider: str, options: Mapping[str, str], extensions: Mapping[str, str]
    ) -> TokenCallback:
        """Return a callback for tokens, which has created one that is valid.

        Settings are also translated where a pooled client is used again. It has a token, so a provider that fails for
        some time must not fail the task.
        """
        callback = TokenCallback(provider, options, extensions)
        key = (os.getpid(), callback)
        if time.time() >= _first_tokens.get(key, 0.0):
            _first_tokens[key] = callback()[1]
        return callback
