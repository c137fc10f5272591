"""Fields, modifiers and values of Sigma's searches as conditions."""

from __future__ import annotations

import base64

import pytest

from turnout.conditions import evaluate, format_condition
from turnout.subscriptions.sigma import InexpressibleError, field_condition, pieces_of


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("Image", "a.exe", "Image:i:a.exe"),
        ("Image", ["a.exe", "b.exe"], "Image:i:a.exe OR Image:i:b.exe"),
        ("Image|contains", "tmp", "Image:i:*tmp*"),
        ("Image|startswith", "C:", "Image:i:C:*"),
        ("Image|endswith", "\\sh", "Image:i:*\\\\sh"),
        ("Image|contains|all", ["a", "b"], "Image:i:*a* AND Image:i:*b*"),
        ("Image|contains", "*a", "Image:i:*a*"),
        ("Image|cased", "A", "Image:A"),
        ("Image", "a?b*c", "Image:i:a?b*c"),
        ("Image", r"a\*b\?c\\*", r"Image:i:a\*b\?c\\*"),
        ("EventID", 4688, "EventID:i:4688"),
        ("Signed", True, "Signed:i:true"),
        ("Image", "", 'Image:i:""'),
        ("Image", None, "NOT Image exists"),
        ("Image|exists", True, "Image exists"),
        ("Image|exists", False, "NOT Image exists"),
        ("Address|cidr", ["10.0.0.0/8", "::1/128"], "Address in 10.0.0.0/8 OR Address in ::1/128"),
        ("Count|gte", 5, "Count>=5"),
        ("Count|lt", "2.5", "Count<2.5"),
        ("Image|re", "a[bc]+$", "Image=~a[bc]+$"),
        ("Image|re|s|i", "a", 'Image=~"(?is)a"'),
        ("Image|neq", ["a", "b"], "NOT (Image:i:a OR Image:i:b)"),
        ("Image|base64", "a b", "Image:i:YSBi"),
        ("Image|wide|base64|contains", "a", "Image:i:*YQA=*"),
        ("", "mimikatz", "*:i:*mimikatz*"),
        ("", ["a*b", 4688], "*:i:*a*b* OR *:i:*4688*"),
        ("|all", ["a", "b"], "*:i:*a* AND *:i:*b*"),
        ("|cased", "A", "*:*A*"),
        ("|startswith", "a", "*:i:a*"),
        ("|re", "a+$", "*=~a+$"),
        ("*", "a", '"*":i:a'),
        ("User|fieldref", "Owner", "User=i=field(Owner)"),
        ("User|fieldref|cased", ["Owner", "*"], 'User=field(Owner) OR User=field("*")'),
        ("User|neq|fieldref", "Owner", "NOT User=i=field(Owner)"),
    ],
)
def test_a_field(field: str, value: object, text: str) -> None:
    """Texts ignore case unless they are cased; several values are alternatives unless all are required."""
    assert format_condition(field_condition("s", field, value)) == text


def test_dashes_of_windows() -> None:
    """A dash or slash before a word is any of five, and one inside a word is itself."""
    condition = field_condition("s", "Cmd|windash|contains", " -a b-c")

    assert all(evaluate(condition, {"Cmd": f"run {dash}a b-c"}) for dash in "-/–—―")
    assert not evaluate(condition, {"Cmd": "run -a b/c"})


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
def test_base64_at_any_offset(before: str) -> None:
    """The encoded text is found wherever it begins in a larger one."""
    condition = field_condition("s", "Cmd|base64offset|contains|cased", "secret word")

    assert evaluate(condition, {"Cmd": base64.b64encode(f"{before}secret word!".encode()).decode()})
    assert not evaluate(condition, {"Cmd": base64.b64encode(f"{before}secretword!".encode()).decode()})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("A|week", 3, "the modifier 'week' cannot be expressed"),
        ("A|fieldref|contains", "B", "the modifier 'contains' with fieldref cannot be expressed"),
        ("A|fieldref", 5, "expected a field and the name of another one, found 5"),
        ("A", [], "has no values"),
        ("A", {"b": 1}, "expected a text, a number, true, false or null, found {'b': 1}"),
        ("A|exists", "yes", "expected true or false, found 'yes'"),
        ("A|gt", "much", "expected a number, found 'much'"),
        ("A|cidr", "10.0.0.1/8", "not a network: 10.0.0.1/8 has host bits set"),
        ("A|re", "a(?=b)", "not a regular expression: invalid perl operator: (?="),
        ("A|base64", "a*", "a text with wildcards, or without characters, cannot be encoded"),
        ("A|wide", "a", "an encoding without base64 cannot be expressed: values are texts"),
        ("", None, "expected a keyword, which tests all fields, found a test of none"),
        ("A|contains|cidr", "10.0.0.0/8", "the modifiers 'cidr' and 'contains' do not go together"),
        ("A|re|windash", "-a", "the modifiers 're' and 'windash' do not go together"),
        ("A|lt|gt", 5, "the modifiers 'lt' and 'gt' do not go together"),
        ("A|exists|contains", True, "the modifiers 'exists' and 'contains' do not go together"),
        ("A|i|contains", "b", "the modifier 'i' needs 're'"),
        ("A|windash", "-a -b -c -d", "windash with more than 3 dashes cannot be expressed"),
    ],
)
def test_what_cannot_be_expressed(field: str, value: object, reason: str) -> None:
    """Each has its reason, and the path that it was called with."""
    with pytest.raises(InexpressibleError) as caught:
        field_condition("s.A", field, value)

    assert (caught.value.path, caught.value.reason) == ("s.A", reason)


def test_backslashes() -> None:
    """A backslash that escapes nothing is text."""
    assert pieces_of(r"C:\Win\\x") == [r"C:\Win\x"]
