from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kdsl.secrets.hiding import contains_secret
from kdsl.secrets.jaas import JaasError, Login, is_secret_option, parse_jaas, quote

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return dict(parse_jaas(f"{PLAIN} required {text};").options)


def test_a_login_module_with_its_options() -> None:
    login = parse_jaas(f'{PLAIN} required username="bob" password="pa ss";')

    assert login == Login(PLAIN, {"username": "bob", "password": "pa ss"})
    assert login.kind == "PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = \"b\"  c\t=\n'd'", {"a": "b", "c": "d"}),
        ("a=b-c_1$.x", {"a": "b-c_1$.x"}),
        ('a="b=c;d"', {"a": "b=c;d"}),
        ("a='\"' b=\"'\"", {"a": '"', "b": "'"}),
        (r'a="b\"c\\d\ne\101\8\400x"', {"a": 'b"c\\d\neA8 0x'}),
        ('a="1" a="2"', {"a": "2"}),
        ('"a b"="c"', {"a b": "c"}),
        ('/* x */ b="c" // d=e\n d=f', {"b": "c", "d": "f"}),
        ('a="ü中😀"', {"a": "ü中😀"}),
        ('a=""', {"a": ""}),
        ('a="${env:NAME}"', {"a": "${env:NAME}"}),
    ],
)
def test_options_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_control_flags_come_in_any_letter_case(flag: str) -> None:
    assert parse_jaas(f"{PLAIN} {flag};").flag == flag.lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 1: the class name of a login module is missing"),
        (" ; ", "at character 2: the class name of a login module is missing"),
        (
            "a.B",
            "at character 4: after the login module must come one of 'required', 'requisite', 'sufficient' and "
            "'optional'",
        ),
        (
            "a.B requird;",
            "at character 5: after the login module must come one of 'required', 'requisite', 'sufficient' and "
            "'optional' (did you mean 'required'?)",
        ),
        ('a.B required x="HUSH"', "at character 22: the configuration must end with ';'"),
        ('a.B required x="HUSH" // y=z;', "at character 30: the configuration must end with ';'"),
        ("a.B required password HUSH;", "at character 23: '=' must follow the option 'password'"),
        (
            "a.B required password=1HUSH;",
            "at character 23: the option 'password' has no value that Java can read; put it in double quotes",
        ),
        (
            "a.B required password=${env:HUSH};",
            "at character 23: a reference must be in double quotes",
        ),
        (
            'a.B required password="HUSH;',
            "at character 23: the quoted string that begins here does not end on the same line",
        ),
        (
            'a.B required password="HU\nSH";',
            "at character 23: the quoted string that begins here does not end on the same line",
        ),
        ("a.B required password=HU@SH;", "at character 25: an option, name=value, or the closing ';' is expected here"),
        ("a.B required password=x HU$SH2;", "at character 31: '=' must follow the option here"),
        (
            'a.B required x="HUSH"; c.D required;',
            "at character 24: there is more after the closing ';'; only one login module is allowed",
        ),
    ],
)
def test_an_error_names_location_and_reason_without_content(text: str, message: str) -> None:
    with pytest.raises(JaasError) as e:
        parse_jaas(text)

    assert str(e.value) == message
    assert "HU" not in str(e.value)


@given(
    st.dictionaries(st.text(min_size=1).filter(lambda t: t.isidentifier()), st.text(), max_size=4),
    st.sampled_from(["required", "optional"]),
)
def test_what_is_written_reads_back_equal(values: dict[str, str], flag: str) -> None:
    login = Login(PLAIN, values, flag)

    assert parse_jaas(login.text()) == login


@given(st.text())
def test_any_value_reads_back_from_its_quotation(value: str) -> None:
    assert options(f"x={quote(value)}") == {"x": value}


def read(text: str) -> Login | int:
    """The login of a string, or the position at which it is refused."""
    try:
        return parse_jaas(text)
    except JaasError as e:
        return e.position


@given(st.text(alphabet=st.sampled_from("ab1\"'\\;= \n/*$.{}-"), max_size=30))
def test_any_string_is_parsed_or_refused_at_a_position_within_it(text: str) -> None:
    rows = read(f"{PLAIN} required {text}")

    assert rows in range(1, len(PLAIN) + len(text) + 12) if isinstance(rows, int) else read(rows.text()) == rows


@pytest.mark.parametrize(
    "module",
    [
        PLAIN,
        "org.apache.flink.kafka.shaded.org.apache.kafka.common.security.plain.PlainLoginModule",
        "shaded$PlainLoginModule",
        "PlainLoginModule",
    ],
)
def test_a_shaded_login_module_is_kafka_s(module: str) -> None:
    login = parse_jaas(f"{module} required;")

    assert login.kind == "PlainLoginModule"
    assert login.text() == f"{PLAIN} required;"


def test_another_login_module_keeps_its_name() -> None:
    assert parse_jaas("com.example.Login optional a=b;").text() == 'com.example.Login optional a="b";'


def test_references_are_resolved_within_values_and_not_parsed_again() -> None:
    login = parse_jaas('a.PlainLoginModule required username="${env:U}" password="${env:P}";')

    resolved = login.resolve({"${env:U}": "bob", "${env:P}": 'x" y="z;'}.__getitem__)

    assert resolved.options == {"username": "bob", "password": 'x" y="z;'}
    assert parse_jaas(resolved.text()).options == resolved.options


def test_the_printed_forms_show_references_and_no_secrets() -> None:
    login = parse_jaas('a.OAuthBearerLoginModule required clientId="id" clientSecret="HUSH" password="${env:P}";')

    assert "HUSH" not in repr(login)
    assert str(login) == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="id" clientSecret="***" password="${env:P}";'
    )


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("clientSecret", True),
        ("tokenauth", False),
        ("username", False),
        ("keyTab", False),
        ("useKeyTab", False),
        ("storeKey", False),
        ("privateKey", True),
        ("unsecuredLoginStringClaim_sub", True),
    ],
)
def test_options_that_contain_secrets(name: str, secret: bool) -> None:
    assert is_secret_option(name) == secret


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"username=\"u\" password=\"p w\"", {"username": "u", "password": "p w"}),
        (r"username=\'u\' password=\'p\'", {"username": "u", "password": "p"}),
        (r"username = \"\"", {"username": ""}),
        (r"password=\"a\\\"b\\\\c\"", {"password": r'a"b\c'}),
        (r"password=\"${env:NAME}\"", {"password": "${env:NAME}"}),
        (r"password=\"ü;=\\n\"", {"password": "ü;=\n"}),
        (r"\"a b\"=\"c\"", {"a b": "c"}),
    ],
)
def test_quotes_with_backslashes_as_flink_s_pages_have_them_are_read(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(), min_size=1, max_size=3))
def test_a_string_escaped_as_in_java_is_parsed_unchanged(values: dict[str, str]) -> None:
    text = Login(PLAIN, values).text()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')

    assert parse_jaas(escaped) == parse_jaas(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (r'a.B required username=\"u\" password="HUSH', 38),
        (r"a.B required username=\"HUSH;", 23),
        (r'a.B required username="u" password=\"HUSH', 36),
    ],
)
def test_mixed_quotes_are_reported_with_the_backslashes_and_the_position(text: str, position: int) -> None:
    with pytest.raises(JaasError, match="escape all quotes, or better none") as e:
        parse_jaas(text)

    assert e.value.position == position
    assert "HUSH" not in str(e.value)


def test_a_login_with_escaped_quotes_contains_a_secret_and_is_passed_on_in_java_s_spelling() -> None:
    text = rf"{PLAIN} required username=\"u\" password=\"HUSH\";"

    assert contains_secret("sasl.jaas.config", text)
    assert not contains_secret("sasl.jaas.config", text.replace("HUSH", "${env:PW}"))
    assert parse_jaas(text).text() == f'{PLAIN} required username="u" password="HUSH";'
