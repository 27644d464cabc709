"""Options that are secrets, have older keys, or stand for all keys that begin alike."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from docs.generate.options import options_table
from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import SecretError
from kdsl.options import Options, option
from kdsl.secrets import Secret
from tests.problem_texts import without_code

HUSH = "HUSH"
REFERENCE = "${env:HUSH_NAME}"


class Door(Options):
    """A group for these tests."""

    title = "the door"

    url: str | None = option("url", "Where it is.", default=None, secret="address", aliases=("old.url", "older.url"))
    password: str | Secret | None = option("password", "Opens it.", default=None, secret=True)
    more: Mapping[str, Value] = option(
        "properties.*", "Whatever else.", default=Properties(), aliases=("old.properties.*",)
    )
    colour: str = option("colour", "Its colour.", default="red")


FULL = Door(url=f"http://me:{HUSH}@door", password=HUSH, more={"a.password": HUSH, "size": 3})


def test_a_secret_that_is_written_out_never_shows() -> None:
    shown = [repr(FULL), str(FULL), str(FULL.to_strings()), str(list(FULL.problems())), repr(FULL.split()[0])]

    assert HUSH not in "".join(shown)
    assert FULL.to_strings() == {
        "url": "http://me:***@door",
        "password": "***",
        "properties.a.password": "***",
        "properties.size": "3",
    }


@pytest.mark.parametrize("address", ["me:hush@host", "http://host,me:hush@other", "http://a:b@host,me:hush@other"])
def test_an_address_without_a_scheme_may_contain_a_password_too(address: str) -> None:
    door = Door(url=address)

    assert "hush" not in repr(door)
    assert "hush" not in str(door.to_strings())


def test_a_secret_that_is_written_out_is_not_pickled() -> None:
    with pytest.raises(SecretError, match="write a reference"):
        pickle.dumps(FULL)


def test_a_reference_stays_a_string() -> None:
    door = Door(url=f"http://me:{REFERENCE}@door", password=REFERENCE, more={"a.password": REFERENCE})

    assert (door.url, door.password, dict(door.more)) == (
        f"http://me:{REFERENCE}@door",
        REFERENCE,
        {"a.password": REFERENCE},
    )
    assert door.split() == (door, {})
    assert pickle.loads(pickle.dumps(door)) == door


def test_literals_are_taken_out_and_put_back() -> None:
    apart, literals = FULL.split("here.")

    assert literals == {
        "here.url": f"http://me:{HUSH}@door",
        "here.password": HUSH,
        "here.properties.a.password": HUSH,
    }
    assert apart.password == "${given:here.password}"
    assert pickle.loads(pickle.dumps(apart)) == apart
    assert Door.from_strings(apart.to_strings()).with_literals(literals, "here.") == FULL
    assert apart.with_literals({"elsewhere.password": "x"}, "here.") == apart


def test_equal_secrets_are_equal() -> None:
    assert Door(password=HUSH) == Door(password=Secret(HUSH))
    assert Door(password=HUSH) != Door(password="other")
    assert hash(Door(password=HUSH)) == hash(Door(password=HUSH))


def test_an_older_key_means_the_same() -> None:
    assert Door.from_strings({"older.url": "http://door"}) == Door(url="http://door")
    assert Door.from_strings({"old.properties.size": "3"}) == Door(more={"size": 3})


def test_a_key_and_an_older_one_that_differ_are_refused() -> None:
    (problem,) = Door.from_strings({"url": "http://a", "old.url": "http://b"}).problems(lambda _, key: repr(key))

    assert problem.code == "option-twice"
    assert problem.message == "'url' and its older keys 'old.url' and 'older.url' have different values"
    assert list(Door.from_strings({"url": "http://a", "old.url": "http://a"}).problems()) == []


def test_free_keys_accept_strings_numbers_and_booleans() -> None:
    assert dict(Door(more={"a": 1, "b": True, "c": "x"}).more) == {"a": "1", "b": "true", "c": "x"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"password": [HUSH]}, "password= has the value ***; set password= to a string"),
        (
            {"more": {"a": [HUSH]}},
            "more= has a value of the wrong type for 'a'; use only strings, numbers, true and false in more=",
        ),
        ({"more": HUSH}, "more= has the value ***; set more= to a mapping of settings"),
        ({"pasword": HUSH}, "the door has no option pasword= (did you mean 'password'?)"),
    ],
)
def test_mistakes_are_reported_without_the_secret(settings: dict[str, Any], message: str) -> None:
    problems = [without_code(p) for p in Door(**settings).problems()]

    assert any(text.startswith(message) for text in problems)
    assert HUSH not in "".join(problems)


def test_an_unknown_key_is_reported_with_a_suggestion() -> None:
    (problem,) = Door.from_strings({"properti.size": "3"}).problems()

    assert "the door has no option 'properti.size'" in problem.message


def test_the_reference_page_names_secrets_and_older_keys() -> None:
    page = options_table(Door, "door.")

    assert "| `door.password`<br>`password` | a secret | Opens it. |" in page
    assert "Older key: `door.old.url`." in page
    assert "| `door.properties.*`<br>`more` |" in page
