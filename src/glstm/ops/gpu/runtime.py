"""CUDA C++ at run time: NVRTC compiles a kernel for the device in use, the driver launches it on torch's stream.

Both libraries come with every CUDA build of torch and are called with ctypes: no compiler, no build step, and the same
launch works inside a CUDA graph. A kernel is compiled once for each set of constants, and cached on disk.
"""

import ctypes
import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char_p, c_double, c_int, c_longlong, c_size_t, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.storage import cache_folder, write_atomically

HERE = Path(__file__).parent
TOO_MANY_BLOCKS = 720  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
COMMON = ("instructions.cuh", "cell.cuh", "matrix.cuh")


class CudaError(RuntimeError):
    pass


class DoesNotFit(CudaError):
    """Blocks that must run at the same time are more than the device has room for."""


def read_sources(*names: str) -> str:
    """The text of the named files in this folder, after those that all kernels include."""
    return "".join((HERE / name).read_text() for name in (*COMMON, *names))


@cache
def compiler() -> ctypes.CDLL | None:
    """NVRTC, from torch's libraries, its own package or the system's path; None if it is not found."""
    major = (torch.version.cuda or "13").split(".")[0]
    folders = [Path(path) / "nvidia" for path in sys.path if path]
    found = [str(path) for folder in folders if folder.is_dir() for path in folder.glob("*/lib/libnvrtc.so.*")]
    for name in (f"libnvrtc.so.{major}", *sorted(found, reverse=True)):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def compile_kernels(source: str, architecture: str, constants: dict[str, int]) -> bytes:
    """Machine code for an architecture such as sm_90; needs no device."""
    library = compiler()
    if library is None:
        raise CudaError("NVRTC, CUDA's run-time compiler, was not found; every CUDA build of torch brings it along")
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device"]
    options += [f"-D{name}={int(value)}" for name, value in constants.items()]
    program = c_void_p()
    library.nvrtcCreateProgram(byref(program), source.encode(), b"scan.cu", 0, None, None)
    encoded = [option.encode() for option in options]
    failed = library.nvrtcCompileProgram(program, len(encoded), (c_char_p * len(encoded))(*encoded))
    if failed:
        raise CudaError(f"a kernel does not compile for {architecture}:\n{_text(library, program)}")
    size = c_size_t()
    library.nvrtcGetCUBINSize(program, byref(size))
    code = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, code)
    library.nvrtcDestroyProgram(byref(program))
    return code.raw


def _text(library: ctypes.CDLL, program: c_void_p) -> str:
    size = c_size_t()
    library.nvrtcGetProgramLogSize(program, byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")


def _compiled(source: str, architecture: str, constants: dict[str, int]) -> bytes:
    """Machine code from the cache on disk, or compiled now, which takes half a second."""
    version, library = (c_int(), c_int()), compiler()
    if library is not None:
        library.nvrtcVersion(byref(version[0]), byref(version[1]))
    identity = (source, architecture, sorted(constants.items()), [part.value for part in version])
    key = hashlib.sha256(repr(identity).encode()).hexdigest()
    path = cache_folder() / "kernels" / f"{key}.cubin"
    if path.is_file():
        return path.read_bytes()
    code = compile_kernels(source, architecture, constants)
    with suppress(UserError):  # if the cache cannot be written, the next process compiles again
        write_atomically(path, code)
    return code


class Kernels:
    """The kernels of one source with one set of constants, on any device: `kernels.launch("forward", ...)`.

    crowded: many blocks with tables of their own shall run on a multiprocessor, so its memory shall be shared memory
    rather than cache.
    """

    def __init__(self, source: str, constants: dict[str, int], crowded: bool = False):
        self.source, self.constants, self.crowded = source, constants, crowded
        self.functions: dict[tuple[int, str], tuple[c_void_p, int]] = {}  # and how much shared memory each may have
        self.modules: dict[int, c_void_p] = {}

    def function(self, index: int, name: str, shared_bytes: int) -> c_void_p:
        function, room = self.functions.get((index, name), (None, 0))
        if function is None or shared_bytes > room:
            with torch.cuda.device(index):
                function = self._load(index, name, shared_bytes)
            self.functions[index, name] = function, shared_bytes
        return function

    def _load(self, index: int, name: str, shared_bytes: int) -> c_void_p:
        if index not in self.modules:
            major, minor = torch.cuda.get_device_capability(index)
            code, module = _compiled(self.source, f"sm_{major}{minor}", self.constants), c_void_p()
            _check(driver().cuModuleLoadData(byref(module), code), "load a kernel")
            self.modules[index] = module
        function = c_void_p()
        _check(driver().cuModuleGetFunction(byref(function), self.modules[index], name.encode()), f"find {name}")
        if shared_bytes:  # more than the 48 KB that every kernel may have, its static tables included
            most_dynamic_shared = 8
            _check(driver().cuFuncSetAttribute(function, most_dynamic_shared, shared_bytes), "get shared memory")
        if self.crowded:
            percent_shared = 9
            _check(driver().cuFuncSetAttribute(function, percent_shared, 100), "prefer shared memory")
        return function

    def launch(self, name: str, blocks: tuple[int, int], threads: int, *arguments, **options) -> None:
        """On the current stream of the first tensor's device. Whole numbers are 32-bit; a Long is 64-bit."""
        self.prepare(name, blocks, threads, *arguments, **options)()

    def prepare(
        self, name: str, blocks: tuple[int, int], threads: int, *arguments, shared_bytes: int = 0, together=False
    ) -> Callable[..., None]:
        """A launch that is made many times. If a whole number is given, it replaces the last argument."""
        device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
        start = self.starter(name, device, blocks, threads, shared_bytes, together)
        values = [_as_argument(argument) for argument in arguments]
        parameters = _addresses(values)

        def launch(last: int | None = None) -> None:
            if last is not None:
                values[-1].value = last
            start(parameters)

        return launch

    def starter(
        self,
        name: str,
        device: torch.device,
        blocks: tuple[int, int],
        threads: int,
        shared_bytes: int,
        together: bool = False,
    ) -> Callable[[Any], None]:
        """Starts a kernel on the device's current stream, with these addresses of its arguments.

        together: all blocks run at the same time, and may wait for each other.
        """
        index = torch.cuda.current_device() if device.index is None else device.index
        function = self.function(index, name, shared_bytes)
        begin, more = (driver().cuLaunchCooperativeKernel, ()) if together else (driver().cuLaunchKernel, (None,))

        def start(parameters: Any) -> None:
            if torch._C._cuda_getDevice() != index:
                with torch.cuda.device(index):
                    return start(parameters)
            stream = c_void_p(torch._C._cuda_getCurrentRawStream(index))
            failed = begin(function, *blocks, 1, threads, 1, 1, shared_bytes, stream, parameters, *more)
            if failed:
                _check(failed, f"launch {name}")

        return start


class Prepared:
    """A launch that is made again and again, each time with other pointers; the numbers after them stay.

    Nothing is converted at a call but the pointers, given as whole numbers, which takes a microsecond.
    """

    def __init__(self, start: Callable[[Any], None], pointers: int, *numbers: int | float):
        self.start, self.pointers = start, (c_uint64 * pointers)()
        self.numbers = [_as_argument(number) for number in numbers]
        first = ctypes.addressof(self.pointers)
        self.parameters = (c_void_p * (pointers + len(numbers)))(
            *range(first, first + 8 * pointers, 8), *map(ctypes.addressof, self.numbers)
        )
        self.lock = Lock()  # threads share the memory that the pointers are written to

    def __call__(self, *pointers: int) -> None:
        with self.lock:
            self.pointers[:] = pointers
            self.start(self.parameters)


class Long(int):
    """A whole number that the kernel takes as 64 bits."""


def _as_argument(value):
    if isinstance(value, Tensor) and not value.is_contiguous():
        raise CudaError(
            f"a kernel takes contiguous tensors, but one of {tuple(value.shape)} has strides {value.stride()}"
        )
    if value is None or isinstance(value, Tensor):
        return c_void_p(None if value is None else value.data_ptr())
    if isinstance(value, float):
        return c_double(value)
    return c_longlong(value) if isinstance(value, Long) else c_int(value)


def _addresses(values: list) -> Any:
    return (c_void_p * len(values))(*map(ctypes.addressof, values))


def _check(failed: int, what: str) -> None:
    if failed:
        text = c_char_p()
        driver().cuGetErrorString(failed, byref(text))
        kind = DoesNotFit if failed == TOO_MANY_BLOCKS else CudaError
        raise kind(f"CUDA could not {what}: {(text.value or b'unknown error').decode()}")
