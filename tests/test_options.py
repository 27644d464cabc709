"""An option is declared once and serves constructor, keys, messages and the reference page."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any, Literal

import pytest

from docs.generate.options import options_table
from kdsl.declare.connector import KafkaOptions
from kdsl.options import Options, option
from tests.problem_texts import without_code


class Fruit(Options):
    """A group for these tests."""

    title = "the fruit"

    ripe: bool = option("ripe", "Whether it is ripe.", default=False)
    colour: Literal["red", "GREEN"] = option("colour", "Its colour.", default="red", ignore_case=True)
    seeds: int = option("seed-count", "How many.", default=3, check=lambda v: None if v >= 0 else "give none or more")
    names: tuple[str, ...] = option("names", "What it is called.", default=())
    keeps: timedelta = option("keeps", "How long it keeps.", default=timedelta(days=3))
    note: str | None = option("note", "A remark.", default=None)
    weight: int = option("weight", "Grams.")


def problems_of(fruit: Options) -> list[str]:
    return [without_code(p) for p in fruit.problems()]


class TestConstructor:
    def test_it_takes_the_declared_options(self) -> None:
        fruit = Fruit(weight=5, ripe=True, names=("a", "b"))

        assert (fruit.ripe, fruit.names, fruit.seeds) == (True, ("a", "b"), 3)
        assert problems_of(fruit) == []

    def test_it_records_unknown_names(self) -> None:
        settings: dict[str, Any] = {"wieght": 5, "weight": 1}

        assert problems_of(Fruit(**settings))[0].startswith("the fruit has no option wieght= (did you mean 'weight'?)")

    def test_it_records_what_is_missing(self) -> None:
        settings: dict[str, Any] = {}

        assert problems_of(Fruit(**settings)) == ["weight= is required; add weight=: Grams."]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"ripe": "yes"}, "ripe= has the value 'yes'; set ripe= to true or false"),
            ({"seeds": True}, "seeds= has the value True; set seeds= to an integer"),
            ({"seeds": -1}, "seeds= has the value -1; give none or more"),
            ({"colour": "blue"}, "colour= has the value 'blue'; set colour= to 'red' or 'GREEN'"),
            (
                {"colour": "gren"},
                "colour= has the value 'gren' (did you mean 'GREEN'?); set colour= to 'red' or 'GREEN'",
            ),
            ({"names": ["a"]}, "names= has the value ['a']; set names= to a list separated by ';'"),
            ({"note": 3}, "note= has the value 3; set note= to a string"),
        ],
    )
    def test_it_records_values_of_the_wrong_kind(self, settings: dict[str, Any], message: str) -> None:
        assert problems_of(Fruit(weight=1, **settings)) == [message]

    def test_a_valid_copy_has_defaults_for_wrong_values(self) -> None:
        settings: dict[str, Any] = {"seeds": "x", "ripe": True}

        assert Fruit(weight=1, **settings).valid() == Fruit(weight=1, ripe=True)


class TestStrings:
    def test_strings_become_values(self) -> None:
        settings = {
            "ripe": "TRUE",
            "colour": "green",
            "seed-count": "4",
            "names": "a; b",
            "keeps": "5 min",
            "weight": "1",
        }
        result = Fruit.from_strings(settings)

        expected = Fruit(ripe=True, colour="GREEN", seeds=4, names=("a", "b"), keeps=timedelta(minutes=5), weight=1)
        assert result == expected
        assert problems_of(result) == []

    def test_they_read_back_equal(self) -> None:
        fruit = Fruit(ripe=True, names=("a",), keeps=timedelta(milliseconds=1500), weight=7, note="x")

        assert Fruit.from_strings(fruit.to_strings()) == fruit

    def test_every_wrong_string_is_reported(self) -> None:
        result = Fruit.from_strings(
            {"ripe": "maybe", "seed-count": "four", "colour": "rad", "wait": "1", "keeps": "long"}
        )

        codes = sorted(p.code for p in result.problems())
        assert codes == ["option-missing", "option-unknown", *["option-value"] * 4]
        assert "(did you mean 'red'?)" in "\n".join(problems_of(result))

    @pytest.mark.parametrize("text", ["1e3", "1_000", "", "٣", "9" * 5000])
    def test_an_integer_is_written_in_digits(self, text: str) -> None:
        result = Fruit.from_strings({"weight": "1", "seed-count": text})

        assert "expected an integer" in next(result.problems()).message

    def test_messages_use_the_spelling_of_the_user(self) -> None:
        result = Fruit.from_strings({"ripe": "maybe", "weight": "1"})

        messages = [without_code(p) for p in result.problems(lambda _, key: f"'value.{key}'")]
        assert messages == [
            "'value.ripe' has the value 'maybe': expected true or false; set 'value.ripe' to true or false"
        ]


def test_a_group_is_a_value() -> None:
    fruit = Fruit(weight=1, ripe=True)

    assert pickle.loads(pickle.dumps(fruit)) == fruit
    assert hash(fruit) == hash(Fruit(weight=1, ripe=True))
    assert repr(fruit) == "Fruit(ripe=True, weight=1)"


def test_the_reference_page_has_every_option() -> None:
    lines = options_table(Fruit, "fruit.").splitlines()

    assert len(lines) == 2 + 7
    assert lines[4] == "| `fruit.seed-count`<br>`seeds` | an integer; default `3` | How many. |"
    assert lines[-1] == "| `fruit.weight`<br>`weight` | an integer; required | Grams. |"


def test_a_value_of_any_letter_case_becomes_the_declared_one() -> None:
    options = KafkaOptions(transport="JVM", delivery="Exactly-Once", exactly_once="STAGED")  # type: ignore[arg-type]

    assert (options.transport, options.delivery, options.exactly_once) == ("jvm", "exactly-once", "staged")
    assert list(options.problems()) == []
