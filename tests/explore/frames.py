"""A program: how long frames of the page take while the threshold moves, in a real browser.

python tests/explore/frames.py [RUN...]; without a run, a network of 512 units at 10,000 steps.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from typer.testing import CliRunner

from glstm import GLSTM, SequenceModel
from glstm.cli.main import app

sys.path.insert(0, str(Path(__file__).parents[1]))  # a program is started without the tests' paths

from chromium import OpenPage, chromium

# Another place of the slider in each frame, three times from end to end: how far apart frames begin, in milliseconds.
MOVE = """() => new Promise((done) => {
    const slider = document.getElementById("threshold");
    const last = Number(slider.max), frames = [];
    let place = 0, before = null;
    requestAnimationFrame(function next(now) {
        if (before !== null) frames.push(now - before);
        before = now;
        if (place > 3 * last) return done(frames);
        const at = place % (2 * last);
        slider.value = at <= last ? at : 2 * last - at;
        slider.dispatchEvent(new Event("input"));
        place += 1;
        requestAnimationFrame(next);
    });
})"""


def large_network(folder: Path) -> list[str]:
    torch.manual_seed(0)
    layer = GLSTM(1, 512, mu=(1, 10_000), sigma=(20, 300))
    SequenceModel(layer, nn.Linear(512, 3)).save_pretrained(folder / "large")
    return [str(folder / "large"), "--steps", "10000"]


def busy(session) -> float:
    """Seconds that the page's main thread has worked."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        page = Path(name) / "page.html"
        shown = sys.argv[1:] or large_network(Path(name))
        done = CliRunner().invoke(app, ["explore", *shown, "--static", str(page)])
        assert done.exit_code == 0, done.exception
        for what, width, scale in (("desktop", 1280, 1.0), ("phone", 390, 3.0)):
            opened = OpenPage(browser, page, width=width, scale=scale).page
            session = opened.context.new_cdp_session(opened)
            session.send("Performance.enable")
            work = busy(session)
            frames = sorted(opened.evaluate(MOVE))
            work = 1e3 * (busy(session) - work) / len(frames)
            at = [statistics.median(frames), frames[int(0.95 * len(frames))], frames[-1]]
            slow = sum(frame > 50 for frame in frames)
            print(
                f"{what}: {len(frames)} frames, median {at[0]:.0f} ms, 95 % within {at[1]:.0f}, longest {at[2]:.0f}, "
                f"{slow} above 50; {work:.1f} ms of work in each"
            )


if __name__ == "__main__":
    main()
