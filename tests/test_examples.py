"""The example of docs/deploy.md, on the emulated board, where there is one."""

import subprocess
from pathlib import Path

import pytest
import torch

from glstm import GLSTM, SequenceModel, deploy
from glstm.bench.cortex_m4 import CPU, EMULATOR, HERE, missing_tools
from glstm.runtime.export_c import export_c, vectors_from

BLINK = Path(__file__).parents[1] / "examples/blink/blink.c"


@pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}")
def test_the_light_blinks_what_the_network_says(tmp_path):
    torch.manual_seed(0)
    model = SequenceModel(GLSTM(1, 12, mu=(1, 40), sigma=6.0), torch.nn.Linear(12, 10)).eval()
    with torch.no_grad():
        model.head.get_parameter("bias").copy_(torch.linspace(0, 0.02, 10))  # not always 0
    runtime = deploy(model, 40, 0.01)
    x = torch.rand(40, 1)
    export_c(runtime.plan, tmp_path, "digits", vectors_from(model, 0.01, x.unsqueeze(1)))
    link = [
        "--specs=rdimon.specs",
        "-T",
        HERE / "mps2-an386.ld",
        HERE / "start.c",
        BLINK,
        "digits.c",
        "-I.",
        "-o",
        "blink.elf",
    ]
    subprocess.run(["arm-none-eabi-gcc", *CPU, "-O2", "-Wall", "-Wextra", "-Werror", *link], cwd=tmp_path, check=True)
    pixels = " ".join(map(str, x.flatten().tolist()))
    command = [*EMULATOR, "blink.elf"]
    shown = subprocess.run(command, cwd=tmp_path, input=pixels, capture_output=True, text=True, timeout=120).stdout
    digit = int(runtime(x).argmax())
    assert shown == "*" * digit + f" {digit}\n"
