"""The documentation site in a real browser: it asks for nothing from elsewhere, it can be searched, and read by all."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Page, expect

from build_site import HERE, ROOT, collect, generate, pages
from chromium import chromium

expect.set_options(timeout=30_000)  # milliseconds: tests run beside each other


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def opened(browser, page: Path, width: int = 1280, dark: bool = False) -> Any:
    """A page whose complaints and requests for other places than this machine's files end up in `page.unwanted`."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce"
    )
    shown = context.new_page()
    shown.unwanted = []
    shown.on("console", lambda message: shown.unwanted.append(message.text))
    shown.on("pageerror", lambda error: shown.unwanted.append(str(error)))
    shown.on("request", lambda one: None if one.url.startswith("file:") else shown.unwanted.append(one.url))
    show(shown, page)
    return shown


def show(shown: Page, page: Path) -> None:
    """Until its scripts have run, and what they changed is drawn."""
    shown.goto(page.as_uri())
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")


def in_nav(entries: list) -> list[str]:
    """Every page that the navigation names."""
    values = [value for entry in entries for value in (entry.values() if isinstance(entry, dict) else [entry])]
    return [page for value in values for page in ([value] if isinstance(value, str) else in_nav(value))]


def test_every_page_is_in_the_navigation():
    nav = in_nav(tomllib.loads((HERE / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(nav) == sorted(pages().values())


def test_pages_are_quiet_and_fit_a_phone(browser, site):
    shown = opened(browser, site / "index.html", width=390)
    for page in pages().values():
        show(shown, (site / page).with_suffix(".html"))
        assert shown.unwanted == [], page
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390, page
    shown.context.close()


def test_the_site_shows_what_a_code_host_shows(site):
    """Two readers of Markdown: a list without an empty line before it, say, would be running text to one of them."""
    by_host = MarkdownIt("commonmark", {"html": True}).enable("table")
    for source, page in pages().items():
        if page.startswith("api/"):
            continue
        article = (site / page).with_suffix(".html").read_text().partition("<article")[2].partition("</article>")[0]
        theirs = by_host.render((ROOT / source).read_text())
        for tag in ("h1", "h2", "h3", "li", "tr", "pre", "code", "strong", "em", "img"):
            assert len(re.findall(rf"<{tag}\b", article)) == len(re.findall(rf"<{tag}\b", theirs)), (page, tag)


def test_search_finds_a_heading(browser, site):
    shown = opened(browser, site / "index.html")
    shown.keyboard.press("Control+k")
    shown.get_by_role("combobox", name="Search").press_sequentially("subnormal")
    expect(shown.get_by_role("option").first).to_have_accessible_name("Subnormal numbers")
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("heading", name="Subnormal numbers")).to_be_visible()
    assert re.search(r"cpu\.html.*#subnormal-numbers", shown.url)
    assert [said for said in shown.unwanted if "Autofocus" not in said] == []  # Chromium's, of an address with a #
    shown.context.close()


def test_it_is_light_or_dark_as_the_system_says_or_as_asked(browser, site):
    colours = []
    for dark in (False, True):
        shown = opened(browser, site / "tour.html", dark=dark)
        colours.append(background(shown))
        if dark:
            shown.get_by_title("As the system: switch to light").click()
            assert background(shown) == colours[0]
        shown.context.close()
    assert sum(colours[0]) > 600
    assert sum(colours[1]) < 150


def background(shown: Page) -> tuple[int, ...]:
    text = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize("dark", [False, True])
def test_accessibility(browser, site, dark):
    from axe_playwright_python.sync_playwright import Axe

    for page in ("index.html", "choosing.html", "api/models.html"):
        shown = opened(browser, site / page, dark=dark)
        found = Axe().run(shown)
        assert found.response["violations"] == [], f"{page}: {found.generate_report()}"
        shown.context.close()


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    collect(tmp_path / "pages")
    tour = tmp_path / "pages" / "tour.md"
    tour.write_text(tour.read_text() + "\n[not there](api/layers.md#no-such-name)\n")
    with pytest.raises(SystemExit, match="no-such-name"):
        generate(tmp_path)
