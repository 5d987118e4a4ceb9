"""A real Chromium for the tests of pages, fetched where it is missing and can be."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
PATIENCE = 300  # seconds to fetch it in


def installed() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def fetch() -> None:
    """By the system's packages for somebody who may install some, else by playwright, into its own folder."""
    commands = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get install -y chromium"
        commands.insert(0, ["sh", "-c", f"{install} || (apt-get update && {install})"])
    for command in commands:
        try:
            if subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode == 0:
                return
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def chromium() -> Iterator:
    """A browser of playwright's. Skips the test only where none can be had."""
    if find_spec("playwright") is None:
        pytest.skip("no playwright: pip install 'glstm[dev]' brings it")
    from playwright.sync_api import Error, sync_playwright

    with (Path(tempfile.gettempdir()) / "glstm-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run beside each other fetch it once
        with sync_playwright() as playwright:
            own = Path(playwright.chromium.executable_path)
            if installed() is None and not own.exists():
                fetch()
            fcntl.flock(lock, fcntl.LOCK_UN)
            path = installed()
            if path is None and not own.exists():
                pytest.skip("no Chromium, and neither apt-get nor playwright could fetch one")
            try:
                browser = playwright.chromium.launch(executable_path=path or str(own), args=OPTIONS)
            except Error as error:
                pytest.skip(f"Chromium does not start: {error.message.splitlines()[0]}")
            try:
                yield browser
            finally:
                browser.close()


class OpenPage:
    """A page that is looked at, with everything that it said and asked for."""

    def __init__(self, browser, path: Path, width: int = 1280, dark: bool = False, scale: float = 1.0):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            device_scale_factor=scale,
        )
        context.set_default_timeout(30_000)
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html.ready")
        self.settle()

    def settle(self) -> None:
        """Until what was changed is drawn, and the networks have read their samples."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        for waiting in self.page.query_selector_all(".answer > p.soft"):
            waiting.wait_for_element_state("hidden")

    def move(self, name: str, value: int) -> None:
        change = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"
        self.page.eval_on_selector(f"#{name}", change, value)
        self.settle()

    def choose_sample(self, number: int) -> None:
        self.page.select_option("#sample", str(number))
        self.settle()

    def figures(self) -> list[dict[str, str]]:
        """Of each network, by name, with all digits."""
        return self.page.evaluate(
            "() => [...document.querySelectorAll('.figures')].map((list) => Object.fromEntries([...list.children].map("
            "(one) => [one.querySelector('dt').textContent, one.querySelector('b').dataset.value])))"
        )

    def answers(self) -> list[list[float]]:
        """The outputs of each network at the present step."""
        return self.page.evaluate(
            "() => [...document.querySelectorAll('.bars')].map((list) => JSON.parse(list.dataset.outputs))"
        )

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def check_quiet(self) -> None:
        """It has complained about nothing, and has asked for nothing but itself."""
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith("file:")] == []
        assert len(self.requests) == 1
