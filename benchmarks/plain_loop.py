"""Networks trained in a plain loop: from their folders to C, ONNX and streams, by commands, each beside PyTorch.

    python benchmarks/plain_loop.py [--data FOLDER] [--sequences 1000] [--steps 150] [--out FOLDER]

One network reads MNIST pixel by pixel, as in the paper; one reads it row by row from both ends, with a larger head.
Both are trained for some steps of a loop that knows nothing of glstm's commands, and saved by `save_pretrained`. Then
`glstm evaluate`, `deploy`, `export c` and `export onnx` are called on the folders, and the largest difference from
PyTorch in float64 is taken over real test images. It writes benchmarks/plain_loop.json.
"""

import argparse
import copy
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import glstm
from glstm.bench.machine import describe
from glstm.data import SequentialMNIST
from glstm.runtime.check_onnx import session
from glstm.scaling import Standardize

RESULT = Path(__file__).parent / "plain_loop.json"
STRICT = ["cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]
CLASSES = tuple(f"digit {number}" for number in range(10))
V_T = 0.01


def by_pixel(images: Tensor) -> glstm.SequenceModel:
    layer = glstm.GLSTM(1, 64, mu=(1, 784), sigma=40.0)
    head = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10))
    return glstm.SequenceModel(layer, head, inputs=standardized(images), classes=CLASSES)


def by_row(images: Tensor) -> glstm.SequenceModel:
    layer = glstm.GLSTM(28, 48, 2, bidirectional=True, mu=(1, 28), sigma=6.0)
    head = nn.Sequential(nn.Linear(96, 40), nn.SiLU(), nn.LayerNorm(40), nn.Linear(40, 10), nn.LogSoftmax(-1))
    return glstm.SequenceModel(layer, head, reads="mean", inputs=standardized(images), classes=CLASSES)


NETWORKS = {"by pixel": (by_pixel, 1), "by row, both ways": (by_row, 28)}


def standardized(images: Tensor) -> Standardize:
    inputs = Standardize(images.shape[-1])
    inputs.mean.fill_(images.mean().item())
    inputs.scale.fill_(images.std().item())
    return inputs


def train(model: glstm.SequenceModel, x: Tensor, y: Tensor, steps: int) -> float:
    """A loop as anybody would write it: x (T, N, D). Returns the last loss."""
    optimizer = torch.optim.Adam(glstm.parameter_groups(model, lr=3e-3))
    draws = torch.Generator().manual_seed(0)
    model.train()
    loss = torch.zeros(())
    for _ in range(steps):
        batch = torch.randint(x.shape[1], (100,), generator=draws)
        loss = nn.functional.cross_entropy(model(x[:, batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()


@torch.no_grad()
def in_float64(model: glstm.SequenceModel, x: Tensor) -> np.ndarray:
    exact = copy.deepcopy(model).double().eval()
    exact.layer.threshold, exact.layer.backend = V_T, "reference"
    return torch.cat([exact(part.double()) for part in x.split(100, 1)]).numpy()


def command(*arguments: object) -> str:
    done = subprocess.run([sys.executable, "-m", "glstm", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"glstm {arguments[0]}: {done.stderr}")
    return done.stdout


def from_c(folder: Path, x: Tensor) -> np.ndarray:
    """What the compiled program prints for these sequences; the self-test that was exported with it runs first."""
    for kind in ("TEST", "MAIN"):
        subprocess.run([*STRICT, f"-DDIGITS_{kind}", "digits.c", "-o", kind], cwd=folder, check=True)
    subprocess.run(["./TEST"], cwd=folder, check=True, capture_output=True)
    text = "\n".join(f"{value:.9g}" for value in x.transpose(0, 1).flatten().tolist())
    done = subprocess.run(["./MAIN"], cwd=folder, input=text, capture_output=True, text=True, check=True)
    return np.array([line.split("\t")[0].split() for line in done.stdout.splitlines()], np.float64)


def from_stream(folder: Path, steps: int, x: Tensor) -> np.ndarray:
    stream = glstm.deploy(glstm.SequenceModel.from_pretrained(folder), steps, V_T).stream()
    answers = []
    for sequence in x.transpose(0, 1).numpy():
        stream.reset()
        for sample in sequence:
            stream.step(sample)
        answers.append(stream.output())
    return np.stack(answers)


def check(name: str, images: dict[str, tuple[Tensor, Tensor]], sequences: int, steps: int, out: Path) -> dict:
    make, width = NETWORKS[name]
    rows = {part: (x.reshape(len(x), -1, width).transpose(0, 1).contiguous(), y) for part, (x, y) in images.items()}
    torch.manual_seed(0)
    model = make(rows["train"][0])
    loss = train(model, *rows["train"], steps)
    folder = out / name.replace(" ", "-").replace(",", "")
    model.save_pretrained(folder / "model")
    x, y = (values[..., :sequences] if values.dim() == 1 else values[:, :sequences] for values in rows["test"])
    np.savez(folder / "test.npz", x=x.transpose(0, 1).numpy(), y=np.array([CLASSES[digit] for digit in y]))
    given = ["--steps", len(x), "--test", folder / "test.npz"]
    tested = json.loads(command("evaluate", folder / "model", *given[2:], "-t", V_T, "--json"))
    command("deploy", folder / "model", *given, "-t", V_T, "--seconds", 0.02)
    command("export", "c", folder / "model", *given, "-t", V_T, "--name", "digits", "--out", folder)
    command("export", "c", folder / "model", *given, "-t", V_T, "--name", "digits", "--int8", "--out", folder / "int8")
    command("export", "onnx", folder / "model", "--steps", len(x), "-t", V_T, "--name", "digits", "--out", folder)
    expected = in_float64(model, x)
    runtime = glstm.deploy(model.eval(), len(x), V_T)
    answers = {
        "deployed, whole": runtime(x).numpy(),
        "C": from_c(folder, x),
        "C, int8": from_c(folder / "int8", x),
        "ONNX": np.asarray(session(onnx.load(folder / "digits.onnx")).run(None, {"x": x.numpy()})[0]),
    }
    if not runtime.plan.two_ways:
        answers["stream"] = from_stream(folder / "model", len(x), x)
    differences = {way: float(np.abs(ours - expected).max()) for way, ours in answers.items()}
    same = {way: int((ours.argmax(1) == expected.argmax(1)).sum()) for way, ours in answers.items()}
    about = {"sequences": len(expected), "steps": len(x), "last_loss": loss, "error": tested["rows"][0]["error"]}
    largest = float(np.abs(expected).max())
    return {**about, "largest_output": largest, "largest_difference": differences, "same_class": same}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, help="folder of MNIST's files; without it, where glstm looks")
    options.add_argument("--sequences", type=int, default=1000)
    options.add_argument("--steps", type=int, default=150, help="of the training loop")
    options.add_argument("--out", type=Path, help="keep the folders and the exported files here")
    given = options.parse_args()
    task = SequentialMNIST(folder=given.data)
    train_part, test_part = task.cut(task.stage(0, 0), slice(0, 5000)), task.test_samples(slice(0, given.sequences))
    images = {part: (x.squeeze(-1).T, y) for part, (x, y) in (("train", train_part), ("test", test_part))}
    with TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        found = {name: check(name, images, given.sequences, given.steps, out) for name in NETWORKS}
    RESULT.write_text(json.dumps({**describe(), **found}, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
