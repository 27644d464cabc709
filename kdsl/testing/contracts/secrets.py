"""The contract of secrets providers: what kdsl relies on, as tests that the tests of a provider subclass.

A subclass names the provider and its secrets; pytest runs the tests of `SecretsContract` with them::

    from kdsl.testing.contracts.secrets import SecretsContract


    class TestVault(SecretsContract):
        name = "vault"

        def secrets(self):
            return {"kafka-password": "HUSH"}

        def unknown_key(self):
            return "missing"

They need neither Spark nor Kafka.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from kdsl.errors import SecretError
from kdsl.secrets import PROVIDERS, Provider, Reference, references, resolve


class SecretsContract(ABC):
    """The tests of a provider; a subclass says which secrets it has.

    Attributes:
        name: The name of its entry point.
        settings: What each reference passes to it as keyword arguments.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def secrets(self) -> Mapping[str, str]:
        """Return some secrets that the provider has, by their keys; at least one."""

    @abstractmethod
    def unknown_key(self) -> str:
        """Return a key for which the provider has no secret."""

    def provider(self) -> Provider:
        """Return the provider, found by its name."""
        provider: Provider = PROVIDERS.load(self.name)
        return provider

    def reference(self, key: str) -> str:
        """Return the reference to a key, as users write it."""
        return str(Reference(self.name, key, settings=self.settings))

    def test_it_is_a_function_that_is_found_by_its_name(self) -> None:
        """Its package registers it in the entry-point group ``kdsl.secrets``."""
        assert callable(self.provider())

    def test_its_secrets_are_strings(self) -> None:
        """Called with a key, it returns the secret."""
        for key, secret in self.secrets().items():
            assert self.provider()(key, **self.settings) == secret

    def test_references_are_replaced_by_its_secrets(self) -> None:
        """A reference is valid, and is replaced inside a longer text; the secret is not searched for others."""
        for key, secret in self.secrets().items():
            text = self.reference(key)

            assert [str(one) for one in references(text)] == [text]
            assert resolve(f"before {text} after") == f"before {secret} after"

    def test_a_secret_can_be_asked_for_again(self) -> None:
        """Each client that is created asks again."""
        for key, secret in self.secrets().items():
            assert {resolve(self.reference(key)) for _ in range(3)} == {secret}

    def test_several_threads_can_ask_at_the_same_time(self) -> None:
        """Tables are written at the same time, each with clients of its own."""
        keys = [*self.secrets()] * 20
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(resolve, map(self.reference, keys))) == [self.secrets()[key] for key in keys]

    def test_a_key_without_a_secret_is_a_lookup_error(self) -> None:
        """A provider may also raise a `SecretError`, whose message users see."""
        with pytest.raises((LookupError, SecretError)):
            self.provider()(self.unknown_key(), **self.settings)
        with pytest.raises(SecretError):
            resolve(self.reference(self.unknown_key()))

    def test_no_secret_is_in_an_error(self) -> None:
        """Errors are logged; they must not contain secrets, also where a call is wrong."""
        for call in (lambda: resolve(self.reference(self.unknown_key())), self._call_without_a_key):
            try:
                call()
            except Exception as e:  # noqa: BLE001  # whatever the provider raises
                text = "".join(traceback.format_exception(e))
                assert not [key for key, secret in self.secrets().items() if secret in text]

    def _call_without_a_key(self) -> Any:
        return self.provider()(None, **self.settings)
