"""Networks as WebAssembly, in a real browser, say what PyTorch says."""

import json
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from queue import Queue
from typing import ClassVar

import numpy as np
import pytest
import torch
from networks import STEPS, deep_network, network, raw_network, raw_sequences

from glstm import GLSTM, GatedLSTM, Periodic, SequenceModel, deploy
from glstm.errors import UserError
from glstm.runtime.export_c import Times, vectors_from
from glstm.runtime.export_wasm import export_wasm, wasm_compiler
from glstm.runtime.quantize import dequantized, quantize

V_T = 0.01
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(find_spec("ziglang") is None and not shutil.which("wasm-ld"), reason="no wasm compiler")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium")

PAGE = """<!doctype html><script type="module">
const said = {};
try {
  for (const name of NAMES) {
    const made = await import(`./${name}.js`);
    const { x, count, times } = await (await fetch(`./${name}.json`)).json();
    const network = await made.load(), steps = times ? times.length : made.steps, size = steps * made.inputs;
    said[name] = { steps: made.steps, classes: made.classes, y: [] };
    for (let n = 0; n < count; n++) {
      const window = x.slice(n * size, (n + 1) * size).map((one) => one ?? NaN);
      if (network.run) { said[name].y.push(...network.run(window)); continue; }
      network.reset();
      for (let step = 0; step < steps; step++) {
        const more = network.step(window.slice(step * made.inputs, (step + 1) * made.inputs), times?.[step]);
        if (more !== (times ? true : step + 1 < steps)) throw new Error(`step ${step} says ${more}`);
        if (name === "every") said[name].y.push(...network.output());
      }
      if (name !== "every") said[name].y.push(...network.output());
    }
    try { (network.step ?? network.run)([1, 2, 3, 4, 5]); } catch (error) { said[name].refused = error.message; }
  }
} catch (error) { said.error = `${error}`; }
await fetch("./", { method: "POST", body: JSON.stringify(said) });
</script>"""


class Server(SimpleHTTPRequestHandler):
    """Gives a folder's files, and keeps what a page sends back."""

    said: ClassVar[Queue] = Queue()
    folder: ClassVar[str]

    def __init__(self, *given):
        super().__init__(*given, directory=self.folder)

    def do_POST(self):
        self.said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *args):
        pass


def in_the_browser(folder, names) -> dict:
    (folder / "page.html").write_text(PAGE.replace("NAMES", json.dumps(names)))
    Server.folder = str(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser"]
    page = f"http://127.0.0.1:{server.server_port}/page.html"
    command = [str(BROWSER), *options, "--remote-debugging-port=0", page]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return Server.said.get(timeout=120)
    finally:
        browser.terminate()
        browser.wait()
        server.shutdown()
        server.server_close()


def two_ways() -> SequenceModel:
    torch.manual_seed(0)
    layer = GLSTM(2, 5, bidirectional=True, mu=(1, STEPS), sigma=9.0)
    return SequenceModel(layer, torch.nn.Linear(10, 3), classes=["a", "b", "ü"]).eval()


def timed() -> SequenceModel:
    torch.manual_seed(0)
    layer = GatedLSTM(2, 6, gate=Periodic(mu=(0, 9), sigma=2.0, tau=(10, 20)))
    return SequenceModel(layer, torch.nn.Linear(6, 3)).eval()


def every() -> SequenceModel:
    model = network("wide gates")
    return SequenceModel(model.layer, model.head, reads="every").eval()


MODELS = {
    "last": lambda: deep_network("stack"),
    "int8": lambda: network("g-LSTM"),
    "every": every,
    "raw": lambda: raw_network("carry", rescaled=True),
    "two_ways": two_ways,
    "timed": timed,
}


@needs_browser
def test_networks_in_a_browser_say_what_pytorch_says(tmp_path):
    expected = {}
    for name, made in MODELS.items():
        model = made()
        in_time = name == "timed"
        plan = deploy(model, None if in_time else STEPS, V_T).plan
        ticks = torch.randint(1, 9, (STEPS,)).cumsum(0) if in_time else None
        x = torch.randn(STEPS, 3, plan.inputs, generator=torch.Generator().manual_seed(3))
        x = raw_sequences("carry", batch=3) if name == "raw" else x
        int8 = quantize(plan, x) if name == "int8" else None
        files = export_wasm(plan, tmp_path, name, int8, times=Times(tick=0.5) if in_time else None)
        assert [file.name for file in files] == [f"{name}.wasm", f"{name}.js"]
        vectors = vectors_from(
            dequantized(model, plan, int8) if int8 else model, V_T, x, None if ticks is None else ticks / 2
        )
        expected[name] = plan, vectors
        numbers = [None if np.isnan(one) else one for one in vectors.x.flatten().tolist()]
        given = {"x": numbers, "count": 3, "times": None if ticks is None else ticks.tolist()}
        (tmp_path / f"{name}.json").write_text(json.dumps(given))
    said = in_the_browser(tmp_path, list(expected))
    assert "error" not in said, said["error"]
    for name, (plan, vectors) in expected.items():
        y = np.array(said[name]["y"]).reshape(vectors.y.shape)
        assert (np.abs(y - vectors.y) <= plan.unit.allowed(vectors.y)).all()
        assert said[name]["steps"] == (None if name == "timed" else STEPS)
        assert said[name]["classes"] == (plan.classes and list(plan.classes))
        of, size = ("window", STEPS * 2) if name == "two_ways" else ("sample", plan.inputs)
        assert said[name]["refused"] == f"a {of} has {size} numbers, not 5"


def imports(wasm: bytes) -> bool:
    """Whether there is a section of imports: a byte 2, after the eight of the header and sections of types."""
    at = 8
    while at < len(wasm):
        kind, size, shift, at = wasm[at], 0, 0, at + 1
        while True:
            byte, at = wasm[at], at + 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if kind == 2:
            return True
        at += size
    return False


@pytest.mark.skipif(find_spec("ziglang") is None or not shutil.which("clang"), reason="needs clang and ziglang")
def test_either_compiler_makes_a_module_that_imports_nothing(tmp_path, monkeypatch):
    plan = deploy(network("stack"), STEPS, V_T).plan
    own = export_wasm(plan, tmp_path, "net")[0].read_bytes()
    (tmp_path / "wasm-ld").write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang wasm-ld "$@"\n')
    (tmp_path / "wasm-ld").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert wasm_compiler()[0] == "clang"
    clangs = export_wasm(plan, tmp_path, "net")[0].read_bytes()
    for wasm in (own, clangs):
        assert wasm[:8] == b"\0asm\1\0\0\0"
        assert not imports(wasm)
    assert own == export_wasm_with_zig(plan, tmp_path, monkeypatch)


def export_wasm_with_zig(plan, folder, monkeypatch) -> bytes:
    """Again: the same network gives the same bytes."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return export_wasm(plan, folder, "net")[0].read_bytes()


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("glstm.runtime.export_wasm.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"WebAssembly needs a compiler: clang and wasm-ld, .* or pip install"):
        export_wasm(deploy(network("g-LSTM"), STEPS, V_T).plan, tmp_path, "net")
    assert list(tmp_path.iterdir()) == []
