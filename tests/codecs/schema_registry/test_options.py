from __future__ import annotations

import pytest

from turnout.codecs.schema_registry import SUBJECTS, RegistryOptions


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (5, "registry: expected a mapping"),
        ({}, "url: expected one or more URLs"),
        ({"url": "localhost:8081"}, "found 'localhost:8081'"),
        ({"url": "ftp://ann:secret@a"}, r"found 'ftp://\*\*\*@a'"),
        ({"url": "http://a:99999999"}, "url: expected"),
        ({"url": "http://a", "urls": []}, "urls is not known; did you mean .url"),
        (
            {"url": "http://a", "auth": "ann:secret"},
            "auth: expected a mapping of user, password, userInfo, token, found another",
        ),
        ({"url": "http://a", "auth": {"user": "ann"}}, "auth: expected user and password, or token"),
        ({"url": "http://a", "auth": {"token": 5}}, "auth.token: expected text"),
        ({"url": "http://a", "tls": {"key": "k"}}, "tls.key: needs tls.certificate"),
        ({"url": "http://a", "tls": {"keyPassword": "secret"}}, "tls.keyPassword: needs tls.certificate"),
        (
            {"url": "http://a", "auth": {"user": "a", "password": "secret", "token": "secret"}},
            "auth: expected user and",
        ),
        (
            {"url": "http://ann:secret@a", "auth": {"user": "a", "password": "secret"}},
            "auth: expected one user, found userinfo credentials in the URL as well",
        ),
        ({"url": "http://a", "timeout": 0}, "timeout: expected a number from 0.001 to 600, found 0"),
        ({"url": "http://a", "retries": True}, "retries: expected a number"),
    ],
)
def test_mistakes(given: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as failure:
        RegistryOptions.read(given)
    assert "secret" not in str(failure.value)


def test_several_urls() -> None:
    assert RegistryOptions.read("http://a:1/, https://b").urls == ("http://a:1", "https://b")


def test_secrets_are_masked() -> None:
    options = RegistryOptions.read({"url": "http://a", "auth": {"user": "ann", "password": "hidden"}})
    assert "hidden" not in repr(options)


def test_strategies_by_confluents_class_names() -> None:
    read = SUBJECTS[0].kind.read
    assert read("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy") == "topicRecord"
    assert read("record") == "record"
    with pytest.raises(ValueError, match="expected topic, record, topicRecord"):
        read("com.example.Mine")
