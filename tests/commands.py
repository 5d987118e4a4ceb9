"""The command line as a process of its own, without the seconds that Python takes to import torch.

One process for each worker of the tests imports what the command imports. For every call it forks: the copy goes to the
call's folder, with its environment and its arguments, and runs `python -m glstm` from there. Files, exit status and
what it prints are those of a fresh process. Calls that start processes themselves, and those that change what is read
when Python or torch starts, get a fresh one; so does every call where processes cannot be copied safely.
"""

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

READ_AT_START = ("CUDA", "GLSTM_ENGINE", "GOMP", "KMP", "LD_", "MKL", "MPL", "OMP", "PYTHON", "TORCH_")
IMPORTED = (
    "glstm.cli.main", "glstm.training.loop", "matplotlib.backends.backend_agg", "matplotlib.pyplot", "onnx",
    "pydantic.fields", "typer.rich_utils",
)  # fmt: skip
FOLDER_FIRST, FOLDER_LEFT_OUT = "folder first", "folder left out"  # in the path of modules; as python -P


def glstm_process(*arguments: Any, cwd: Any = None, env: dict[str, str] | None = None, safe_path: bool = False):
    """`python -m glstm`, or `python -P -m glstm`: a subprocess.CompletedProcess with what was printed."""
    words, environment = list(map(str, arguments)), dict(os.environ if env is None else env)
    if sys.platform != "linux" or "--devices" in words or _starts_otherwise(environment):
        command = [sys.executable, *(["-P"] if safe_path else []), "-m", "glstm", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    with TemporaryDirectory() as folder:
        printed = [str(Path(folder) / name) for name in ("stdout", "stderr")]
        call = {"words": words, "cwd": str(cwd or Path.cwd()), "env": environment, "printed": printed}
        code = _server().ask(call | {"path": FOLDER_LEFT_OUT if safe_path else FOLDER_FIRST})
        stdout, stderr = (Path(path).read_text() for path in printed)
    return subprocess.CompletedProcess(["glstm", *words], code, stdout, stderr)


def _starts_otherwise(environment: dict[str, str]) -> bool:
    """Whether it has other values than the process that forks of what is read at the start."""
    had = _server().environment
    names = {name for name in (*environment, *had) if name.startswith(READ_AT_START)}
    return any(environment.get(name) != had.get(name) for name in names)


class _Server:
    """The process that forks. Its answers come in the order of the calls."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        command = [sys.executable, "-P", __file__]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self.close)

    def ask(self, call: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> None:
    for name in IMPORTED:
        with suppress(ModuleNotFoundError):
            import_module(name)
    path = sys.path[:]
    gc.freeze()  # what is never looked at again stays one memory for all copies
    while line := sys.stdin.readline():
        copy = os.fork()
        if not copy:
            sys.path[:] = path
            try:
                _run(json.loads(line))
            finally:
                _end(sys.exception())
        print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)


def _run(call: dict[str, Any]) -> None:
    """In the copy, which ends with this."""
    os.environ.clear()
    os.environ.update(call["env"])
    os.chdir(call["cwd"])
    if call["path"] == FOLDER_FIRST:
        sys.path.insert(0, call["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(call["printed"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = ["glstm", *call["words"]]
    runpy.run_module("glstm", run_name="__main__", alter_sys=True)


def _end(reason: BaseException | None) -> None:
    """As Python ends, without taking everything apart that was imported."""
    code = 0
    if isinstance(reason, SystemExit):
        code = reason.code if isinstance(reason.code, int) else int(bool(reason.code))
        if isinstance(reason.code, str):
            print(reason.code, file=sys.stderr)
    elif reason is not None:
        sys.excepthook(type(reason), reason, reason.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
