from __future__ import annotations

import time

import pytest

from turnout.kafka.jaas import translated_jaas

MODULES = "org.apache.kafka.common.security"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'{MODULES}.scram.ScramLoginModule REQUIRED\n username="a=b" password=\'it"s\';',
            {"sasl.username": "a=b", "sasl.password": 'it"s'},
        ),
        (
            f'{MODULES}.plain.PlainLoginModule required password="a\\"b\\\\" username=ann ;',
            {"sasl.username": "ann", "sasl.password": 'a"b\\'},
        ),
        (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId=id clientSecret=s scope=x extension_p=q;",
            {
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "x",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.extensions": "p=q",
            },
        ),
        (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann";',
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"},
        ),
    ],
)
def test_login_modules(text: str, expected: dict[str, str]) -> None:
    """Options of Java's login modules are the properties that stand for them; quotes and escapes are Java's."""
    assert translated_jaas(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "use SCRAM, OAUTHBEARER"),
        ("com.example.OwnLoginModule required;", "OwnLoginModule has no equivalent"),
        (f'{MODULES}.plain.PlainLoginModule required username="hidden";', "password is missing"),
        (f"{MODULES}.plain.PlainLoginModule required username=a password=hidden user_b=hidden;", "user_b"),
        (f'{MODULES}.plain.PlainLoginModule required username="hidden', "cannot be read after character"),
        (f'{MODULES}.plain.PlainLoginModule required password="hidden" username="a"', "final ';'"),
    ],
)
def test_texts_without_an_equivalent(text: str, problem: str) -> None:
    """An untranslatable text is refused with its replacement, and without its values."""
    with pytest.raises(ValueError, match=problem) as refused:
        translated_jaas(text)

    assert "hidden" not in str(refused.value)


def test_long_text() -> None:
    """A megabyte without an end is refused in a time that grows as its length does."""
    begun = time.process_time()
    with pytest.raises(ValueError, match="cannot be read"):
        translated_jaas("PlainLoginModule required " + 'username="' + "\\" * 1_000_001)

    assert time.process_time() - begun < 5
