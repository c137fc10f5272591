"""The pages of subscriptions in a real browser."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.console.browser import MISSING, chromium, fill, press, quiet, text_of, until
from turnout.rpc.caller import Caller
from turnout.server.serving import RouteServer

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)


def test_a_subscription_is_written_tried_and_deleted(server: RouteServer, driver: webdriver.Chrome) -> None:
    """The condition is parsed while it is typed; a mistake is shown under its position."""
    driver.get(f"{server.url}/subscriptions")
    driver.find_element(By.ID, "new-subscription").click()
    fill(driver, "#condition_text", "town:Oulu AND AND")
    until(driver, lambda _: "^" in text_of(driver, "#read .caret"))
    fill(driver, "#condition_text", "town:Rovaniemi")
    until(driver, lambda _: "It reads: town:Rovaniemi" in text_of(driver, "#read"))
    fill(driver, "#destinations", "deliver.rovaniemi")
    fill(driver, "#own", "team=north")
    driver.find_element(By.CSS_SELECTOR, "form[action='/v1/subscriptions'] button").click()
    until(driver, lambda _: "town:Rovaniemi" in text_of(driver, "table.list"))

    driver.get(f"{server.url}/subscriptions?metadata=team%3Dnorth")
    driver.find_element(By.CSS_SELECTOR, "table.list th a").click()
    driver.find_element(By.CSS_SELECTOR, "button.danger").click()
    driver.switch_to.alert.accept()
    until(driver, lambda _: driver.current_url == f"{server.url}/subscriptions")

    assert "town:Rovaniemi" not in text_of(driver, "table.list")


def test_a_condition_is_tried_on_history_while_it_is_typed(server: RouteServer, driver: webdriver.Chrome) -> None:
    """That of a new subscription as well; the page of one shows at once what it would have matched, and when."""
    driver.get(f"{server.url}/new-subscription")
    fill(driver, "#condition_text", "town:Oulu")
    until(driver, lambda _: "of 400" in text_of(driver, "#trial"))
    text, trial = (driver.find_element(By.CSS_SELECTOR, one).rect for one in ("#condition_text", "#trial"))
    assert trial["x"] > text["x"] + text["width"], "the trial is beside the text"
    fill(driver, "#count", "40")
    driver.find_element(By.CSS_SELECTOR, "form[action='/fragments/trial'] button").click()
    until(driver, lambda _: "of 40:" in text_of(driver, "#trial"))
    driver.get(f"{server.url}/subscriptions/town-oulu")
    until(driver, lambda _: "of 400" in text_of(driver, "#trial"))

    assert driver.find_elements(By.CSS_SELECTOR, "#trial svg.bars .bar")
    assert driver.find_elements(By.CSS_SELECTOR, "#trial li a")


def test_a_condition_is_built_from_parts(server: RouteServer, driver: webdriver.Chrome) -> None:
    """Each part is added to the text, which is tried on history at once; a value that is none is a sentence."""
    with quiet(driver, server.url):
        driver.get(f"{server.url}/new-subscription")
        keys = [one.get_attribute("value") for one in driver.find_elements(By.CSS_SELECTOR, "#part-keys option")]
        fill(driver, "#part-key", "town")
        fill(driver, "#part-value", "Oulu")
        press(driver, "form[data-builder] button")
        until(driver, lambda _: "of 400" in text_of(driver, "#trial"))
        first = text_of(driver, "#trial strong")
        driver.find_element(By.XPATH, "//select[@id='part-join']/option[.='and not']").click()
        driver.find_element(By.XPATH, "//select[@id='part-test']/option[.='<']").click()
        fill(driver, "#part-key", "amount")
        fill(driver, "#part-value", "200")
        press(driver, "form[data-builder] button")
        until(driver, lambda _: "town:Oulu AND NOT amount<200" in text_of(driver, "#read"))
        until(driver, lambda _: text_of(driver, "#trial strong") not in ("", first))
    fill(driver, "#part-value", "many")
    press(driver, "form[data-builder] button")
    until(driver, lambda _: "expected a number, found 'many'" in text_of(driver, "#read"))
    driver.get_log("browser")

    assert keys == ["topic", "key", "amount", "town"]
    assert driver.find_element(By.CSS_SELECTOR, "#tried").get_attribute("value") == "town:Oulu AND NOT amount<200"


def test_the_body_of_messages_is_changed_on_the_page_of_a_subscription(
    server: RouteServer, driver: webdriver.Chrome
) -> None:
    """Shown, changed and taken away; an expression that is none is refused in a sentence."""
    save = "form[data-json='PATCH'][data-if-match] button"
    driver.get(f"{server.url}/subscriptions/trials")
    fill(driver, "#project", "{'order': value.")
    press(driver, save)
    until(driver, lambda _: "project" in text_of(driver, "form[data-if-match] output"))
    fill(driver, "#project", "{'order': value.order}")
    press(driver, save)
    until(driver, lambda _: "{'order': value.order}" in text_of(driver, ".facts"))
    fill(driver, "#project", "")
    press(driver, save)
    until(driver, lambda _: "Body of its messages" not in text_of(driver, ".facts"))
    driver.get_log("browser")

    assert server.parts.subscriptions is not None
    assert server.parts.subscriptions.service(Caller()).read("trials").project == ""
