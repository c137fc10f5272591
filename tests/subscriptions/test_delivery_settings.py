from __future__ import annotations

import pickle

import pytest

from turnout.errors import ConfigError
from turnout.subscriptions.credentials import new_secret
from turnout.subscriptions.delivery_settings import DeliverySettings


def test_defaults_are_no_mapping_and_the_schedule_of_the_documentation():
    """Default settings write nothing, and wait from 5 s to 24 h between attempts."""
    settings = DeliverySettings()

    assert settings.to_mapping() == {}
    assert settings.retry == (5, 30, 120, 600, 3600, 21600, 86400)


def test_settings_come_back_from_their_mapping_and_their_pickle():
    """Every setting survives the way through plain values and through pickle, equal and with one hash."""
    written = {
        "retry": ["1s", 60],
        "jitter": 0,
        "retryAfter": "10m",
        "orderBy": "value.account.id",
        "rate": 2.5,
        "concurrency": 3,
        "timeout": "250ms",
        "maxResponse": 10,
        "maxWaiting": 5,
        "breakerFailures": 0,
        "breakerPause": 1,
        "disableAfter": 3600,
        "format": "cloudevents-batched",
        "headers": {"X-Shard": "7"},
        "headerNames": {"id": "X-Id"},
        "credentials": "hidden:0123abcd",
        "secrets": ["hidden:0123abcd", f"sealed:0123abcd:{'A' * 120}"],
    }
    settings = DeliverySettings.from_mapping(written)

    assert settings.timeout == 0.25
    assert DeliverySettings.from_mapping(settings.to_mapping()) == settings
    copy = pickle.loads(pickle.dumps(settings))
    assert (copy, hash(copy)) == (settings, hash(settings))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"retries": [1]}, 'retries: unknown setting; did you mean "retry"?'),
        ({"retry": "5s"}, "retry: expected a list of durations, found '5s'"),
        ({"retry": ["5 s"]}, "retry: expected a duration from 0.001 to 2.592e+06 seconds, found '5 s'"),
        ({"concurrency": True}, "concurrency: expected a whole number from 1 to 1,000, found True"),
        ({"timeout": float("nan")}, "timeout: expected a duration from 0.001 to 3600 seconds, found nan"),
        ({"orderBy": "account"}, "orderBy: expected value.PATH or header.NAME, found 'account'"),
        ({"ordered": True, "orderBy": "value.a"}, "orderBy: ordered puts all messages in one order already"),
        ({"headers": {"Authorization": "Bearer x"}}, "headers: Authorization holds a secret"),
        ({"headerNames": ["x"]}, "headerNames: expected an object with some of id, timestamp, signature, receiver,"),
        ({"headerNames": {"ids": "x"}}, "headerNames: found 'ids', expected one of id, timestamp"),
        ({"headerNames": {"id": "x y"}}, "headerNames: id: expected the name of a header, found 'x y'"),
        ({"headerNames": {"id": "Host"}}, "headerNames: id: Host is set by turnout"),
        ({"headerNames": {"id": "Webhook-Signature"}}, "headerNames: two of the headers would be webhook-signature"),
        ({"headerNames": {"id": "X"}, "headers": {"x": "1"}}, "headers: x is the name of a header of headerNames"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "headers: X-A: expected a text of at most 4,096 visible ASCII"),
        ({"headers": {"Content-Length": "1"}}, "headers: Content-Length is set by turnout"),
        ([], "(the whole): expected an object, found list"),
        ({"secrets": "whsec_x"}, "secrets: expected a list of secrets, found str"),
        ({"secrets": [7]}, "secrets: expected a text at 0, found int"),
        ({"secrets": ["whsec_MfKQ9r8GKYqr"]}, "secrets: [0]: expected 24 to 64 bytes in base64 behind whsec_, found 9"),
        ({"secrets": ["hidden:x"]}, "secrets: [0]: expected whsec_ (HMAC-SHA256) or whsk_ (Ed25519), and base64"),
        ({"secrets": ["hidden:0123abcd"] * 5}, "secrets: expected at most 4 secrets, found 5"),
    ],
)
def test_mistakes_name_the_setting_the_value_and_the_expectation(mapping, message):
    """A wrong setting is refused with its key, what was found and what was expected."""
    with pytest.raises(ConfigError) as refused:
        DeliverySettings.from_mapping(mapping)

    assert message in str(refused.value)


def test_all_mistakes_come_in_one_message():
    """Several wrong settings are listed together."""
    with pytest.raises(ConfigError) as refused:
        DeliverySettings.from_mapping({"rate": 0, "concurrency": 0, "jitter": 2})

    assert [mistake.path for mistake in refused.value.mistakes] == ["jitter", "rate", "concurrency"]


def test_plain_secrets_are_shown_and_stored_nowhere():
    """Neither a text of the settings nor a mistake has a secret; the stored form refuses it, pickle carries it."""
    secret = new_secret()
    settings = DeliverySettings.from_mapping({"secrets": [secret]})

    assert secret not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.to_mapping(plain=True) == {"secrets": [secret]}
    with pytest.raises(ConfigError, match=r"secrets\[0\]: it is not encrypted, and no store keeps it"):
        settings.to_mapping()
    for wrong in ([secret], {"secrets": secret}, {"secrets": [f"{secret}!"]}, {"secrets": [{"value": secret}]}):
        with pytest.raises(ConfigError) as refused:
            DeliverySettings.from_mapping(wrong)
        assert secret not in str(refused.value)
