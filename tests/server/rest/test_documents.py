"""The description of the interface, and its page."""

from __future__ import annotations

from starlette.testclient import TestClient


def test_the_description_is_openapi_3_1_and_has_a_page_of_its_own(client: TestClient) -> None:
    """Every path is on the page, which loads nothing from elsewhere."""
    document = client.get("/v1/openapi.json").json()
    page = client.get("/v1/docs").text

    assert document["openapi"].startswith("3.1")
    assert {"/v1/routes/{name}/offsets", "/v1/subscriptions/match", "/connectors/{name}/status"} <= set(
        document["paths"]
    )
    assert all(path in page for path in document["paths"])
    assert client.get("/v1/docs.css").headers["content-type"].startswith("text/css")
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert all(operation.get("summary") for operation in operations)
