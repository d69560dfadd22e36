"""The console in a real browser: what it shows of a cluster under load, by keyboard and pointer, on a screen and a phone.

    python console.py --console http://127.0.0.1:8002 --chromium /usr/bin/chromium --model resnet --out FOLDER

Screenshots go to FOLDER, to be looked at. Exit status 0: all as expected.
"""

import argparse
import os
import re

from playwright.sync_api import expect, sync_playwright

# Machines of tests are busy: this is patience, not what the console takes.
WITHIN_MS = 30_000
SCREEN, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
VIEWS = {"models": "#/", "gpus": "#/gpus", "events": "#/events", "processes": "#/processes"}


def watched(page, base):
    """Everything that a page must not do: fail, be refused by its own policy, or ask anybody else."""
    wrong = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda said: wrong.append(f"said: {said.text}") if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(base) else wrong.append(f"asked {asked.url}"))
    return wrong


def models(page, model):
    row = page.locator(f'tr.row[data-key="{model}"]')
    expect(row.locator(".state")).to_have_text("ready")
    # The last minute and its latency, beside the SLO.
    expect(row).to_contain_text(re.compile(r"\d ms / 500 ms"))
    expect(row.locator("td").nth(2)).to_have_text(re.compile(r"[1-9]"))
    expect(page.locator(".tiles")).to_contain_text("1 / 1")
    page.locator("#filter").fill("nobody is called so")
    expect(page.locator("#view")).to_contain_text("No model has this in its name")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(row).to_be_visible()


def keys(page, model):
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).not_to_be_visible()
    page.locator('th button[data-sort="Requests/s"]').click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Requests/s")
    page.locator("h1").hover()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    expect(page.locator("tr.marked")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".title h2")).to_have_text(model)


def model_page(page):
    """Charts with their units, and a request with its explanation."""
    charts = page.locator(".chart")
    expect(charts).to_have_count(4)
    expect(charts.nth(0)).to_contain_text("SLO 500 ms")
    for chart, line in ((0, "path.p99"), (1, "path.in-time"), (2, "path.batch"), (3, "path.waiting")):
        expect(charts.nth(chart).locator(line)).to_have_attribute("d", re.compile("^M"))
    label = charts.nth(0).locator("svg").get_attribute("aria-label")
    assert "p99" in label and "500 ms" in label, label
    page.keyboard.press("ArrowLeft")
    expect(charts.nth(0).locator("h2")).to_have_text(re.compile(r"Latency, \d\d:\d\d:\d\d"))
    page.keyboard.press("Escape")
    expect(charts.nth(0).locator("h2")).to_have_text("Latency, now")
    slowest = page.locator("section", has_text="Slowest of the last ten minutes")
    slowest.locator("button[data-explain]").first.click()
    expect(slowest.locator("pre")).to_contain_text(re.compile("decided|no leader remembers"))


def gpus(page, model):
    expect(page.locator(".lane b")).to_have_count(2)
    page.locator('#spans button[data-span="20000"]').click()
    bar = page.locator(".lane rect[data-title]").first
    expect(bar).to_have_attribute("data-title", re.compile(re.escape(model) + r" #\d+: \d+ items?, .* ms \(planned"))


def events(page):
    lines = page.locator(".events li")
    expect(lines.filter(has_text="ready on").first).to_be_visible()
    for time in lines.locator("time").all_inner_texts():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time), time


def processes(page):
    rows = page.locator("tbody tr")
    expect(rows.filter(has_text="scheduler")).to_have_count(3)
    expect(rows.filter(has_text="leads the control group")).to_have_count(1)
    expect(rows.filter(has_text="serves this page")).to_have_count(1)
    expect(page.locator('td[data-label="policy"]').first).to_have_text("auto")


def shoot(page, out, name):
    page.screenshot(path=os.path.join(out, f"{name}.png"), full_page=True)


def fits(page, view):
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{view} is {wide} pixels too wide for a phone"


def main():
    arguments = argparse.ArgumentParser()
    for name in ("console", "chromium", "model", "out"):
        arguments.add_argument(f"--{name}", required=True)
    given = arguments.parse_args()
    os.makedirs(given.out, exist_ok=True)
    # Chromium's sandbox refuses root, which tests in containers are.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=WITHIN_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=flags)
        page = browser.new_page(viewport=SCREEN, color_scheme="dark")
        wrong = watched(page, given.console)
        page.goto(given.console + "/")
        models(page, given.model)
        shoot(page, given.out, "models")
        keys(page, given.model)
        model_page(page)
        shoot(page, given.out, "model")
        for key, view, check in (("2", "gpus", lambda: gpus(page, given.model)), ("3", "events", lambda: events(page)),
                                 ("4", "processes", lambda: processes(page))):
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press(key)
            expect(page.locator(f'nav a[data-view="{view}"]')).to_have_attribute("aria-current", "page")
            check()
            shoot(page, given.out, view)

        phone = browser.new_page(viewport=PHONE, color_scheme="light", has_touch=True)
        wrong_there = watched(phone, given.console)
        for view, route in (*VIEWS.items(), ("model", f"#/models/{given.model}")):
            phone.goto(f"{given.console}/{route}")
            expect(phone.locator("#view")).to_contain_text(re.compile(r"\w"))
            expect(phone.locator("#view")).not_to_contain_text("asking …")
            fits(phone, view)
            shoot(phone, given.out, f"{view}-phone")
        browser.close()
    assert not wrong + wrong_there, wrong + wrong_there
    print("the console is as expected")


if __name__ == "__main__":
    main()
