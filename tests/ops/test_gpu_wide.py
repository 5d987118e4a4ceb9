"""Layers too large for a cluster: blocks that exchange messages. Emulated here; where there is a device, on it."""

from types import SimpleNamespace

import pytest
import torch

from glstm.ops import gated_lstm, gpu
from glstm.ops.gpu import steps, wide
from glstm.ops.gpu.runtime import DoesNotFit, Kernels, compile_kernels
from helpers import relative_error
from ops.test_gpu import (
    EMULATED,
    LIMITS,
    both_precisions,
    check_lost_samples,
    check_precision_change,
    check_same_bits,
    errors,
    needs_compiler,
    on_device,
    operands,
    results,
)

H200 = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=232448)
A100 = SimpleNamespace(multi_processor_count=108, shared_memory_per_block_optin=166912)


@needs_compiler
@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(
    ("architecture", "hidden", "units", "exact"),
    [("sm_80", 600, 16, False), ("sm_90", 1024, 16, False), ("sm_90", 1024, 8, True), ("sm_100", 500, 16, True)],
)
def test_every_kernel_compiles(architecture, part, hidden, units, exact):
    run = wide.kernels(part, **wide.Layout(hidden, exact, units, 1, 1, 1).constants(part, "tanh", exact))
    assert compile_kernels(run.source, architecture, run.constants).startswith(b"\x7fELF")


def shape_of(*arguments):
    layout = wide.layout_for(*arguments)
    return None if layout is None else (layout.units, layout.groups, layout.tiles, layout.models)


def test_how_a_layer_is_laid_out():
    assert shape_of(1, 16, 512, False, H200) == (16, 1, 1, 1)
    assert shape_of(1, 1, 512, True, H200) == (16, 1, 1, 1)
    assert shape_of(1, 1, 1024, True, H200) == (8, 1, 1, 1)  # weights of 16 units and their rounding errors do not fit
    assert shape_of(1, 32, 512, False, H200) == (16, 2, 1, 1)
    assert shape_of(1, 64, 512, False, H200) == (16, 4, 1, 1)
    assert shape_of(1, 1000, 512, False, H200) == (16, 4, 16, 1)
    assert shape_of(1, 65, 512, False, H200) == (16, 3, 2, 1)  # five tiles: two, two and one
    assert shape_of(3, 16, 512, False, H200) == (16, 1, 1, 3)
    assert shape_of(10, 33, 512, False, H200) == (16, 1, 3, 4)
    assert shape_of(1, 16, 1024, False, H200) == (16, 1, 1, 1)
    assert shape_of(1, 16, 1024, True, A100) is None  # 128 blocks of 8 units are too many for it
    assert shape_of(1, 16, 1057, True, H200) is None
    assert shape_of(1, 16, 3000, False, H200) is None


# Precision, units and warps of a block, then as in test_gpu.py.
# Warps have one chunk of units, or several, or some have none.
SMALL_CASES = [
    ("high", 8, 8, (5, 3, 1, 20, False, {})),
    ("highest", 8, 2, (4, 35, 2, 70, True, {"cells": True, "candidate": "sigmoid"})),
    ("high", 8, 1, (6, 16, 6, 70, False, {"sequence": False})),
    ("highest", 8, 2, (3, 9, 1, 128, False, {})),
    ("high", 16, 4, (5, 17, 1, 40, False, {})),
    ("highest", 16, 4, (5, 17, 1, 40, False, {})),
    ("highest", 16, 1, (1, 2, 3, 60, True, {"cells": True})),
]


@pytest.mark.parametrize(("precision", "units", "warps", "case"), SMALL_CASES, indirect=["precision"], ids=str)
def test_kernels_emulated_on_a_cpu(precision, units, warps, case, emulated, monkeypatch):
    emulated(0, units)
    monkeypatch.setattr(wide, "WARPS", dict.fromkeys(wide.WARPS, warps))
    monkeypatch.setattr(steps, "forward", None)  # nothing is left to it
    monkeypatch.setattr(steps, "backward", None)
    length, batch, inputs, hidden, per_sample, options = case
    found = errors(operands(length, batch, inputs, hidden, per_sample, device="cpu"), **options)
    for kind, values in zip(("outputs", "gradients"), found):
        assert all(value < EMULATED[precision][kind] for value in values.values()), values


def test_emulated_a_lost_sample_takes_no_other_with_it(emulated):
    emulated(0, 8)
    check_lost_samples("cpu", 20)


def test_emulated_the_precision_may_change_before_the_way_back(emulated):
    emulated(0, 8)
    check_precision_change("cpu", 20)


def test_emulated_the_same_bits_whatever_the_blocks_speeds(emulated, monkeypatch):
    """The emulated blocks sleep now and then. In other layouts they do so at other moments of the sequence."""
    emulated(0, 8)
    monkeypatch.setattr(wide, "WARPS", dict.fromkeys(wide.WARPS, 2))
    tensors = operands(9, 40, 1, 30, device="cpu")
    found = []
    for multiprocessors in (4, 8, 12):  # three tiles one after the other; two and one; side by side
        device = SimpleNamespace(**(vars(H200) | {"major": 9, "multi_processor_count": multiprocessors}))
        monkeypatch.setattr(gpu, "properties", lambda _, device=device: device)
        found.append(results(tensors, "cuda"))
    for other in found[1:]:
        assert all(torch.equal(other[n][name], part) for n in (0, 1) for name, part in found[0][n].items())


def test_emulated_models_side_by_side_and_one_after_the_other(emulated, monkeypatch):
    emulated(0, 8)
    tensors = operands(3, 19, 2, 20, device="cpu", models=(3,))
    found = []
    for multiprocessors in (3, 6, 132):  # one model and one group at a time; two models; each with two groups
        device = SimpleNamespace(**(vars(H200) | {"major": 9, "multi_processor_count": multiprocessors}))
        monkeypatch.setattr(gpu, "properties", lambda _, device=device: device)
        found.append(results(tensors, "cuda", weighted=False))
    assert [shape_of(3, 19, 20, True, SimpleNamespace(**(vars(H200) | {"multi_processor_count": n})))
            for n in (3, 6, 132)] == [(8, 1, 2, 1), (8, 1, 2, 2), (8, 2, 1, 3)]  # fmt: skip
    for other in found[1:]:
        assert all(torch.equal(other[n][name], part) for n in (0, 1) for name, part in found[0][n].items())
    for m in range(3):
        alone = {name: tensor if name == "x" else tensor[m] for name, tensor in tensors.items()}
        own_outputs, own_gradients = results(alone, "cuda", weighted=False)
        assert all(relative_error(found[0][0][name][m], part) < 1e-6 for name, part in own_outputs.items())
        assert all(relative_error(found[0][1][name][m], own_gradients[name]) < 1e-5 for name in ("w_hh", "k", "h0"))


def test_emulated_closed_units_keep_their_state_bit_for_bit(emulated):
    emulated(0, 8)
    tensors = operands(4, 3, 1, 20, device="cpu")
    tensors["k"][1:3] = 0
    tensors["k"][:, 5] = 0
    outputs, gradients = results(tensors, "cuda")
    assert torch.equal(outputs["h"][1], outputs["h"][0])
    assert torch.equal(outputs["h"][2], outputs["h"][0])
    assert torch.equal(outputs["h"][:, :, 5], tensors["h0"][:, 5].expand(4, 3))
    assert torch.equal(outputs["c_n"][:, 5], tensors["c0"][:, 5])
    assert not gradients["k"][tensors["k"] == 0].any()


def test_emulated_where_others_use_the_device_it_goes_step_by_step(emulated, monkeypatch):
    emulated(0, 8)
    tensors, asked, emulate = operands(3, 3, 1, 20, device="cpu"), [], Kernels.prepare

    def full(self, name, *arguments, together=False, **options):
        asked.append(name)
        if together:
            raise DoesNotFit("CUDA could not launch it: too many blocks in cooperative launch")
        return emulate(self, name, *arguments, **options)

    monkeypatch.setattr(Kernels, "prepare", full)
    found = results(tensors, "cuda")
    assert {"wide_forward", "step_forward", "wide_backward", "step_backward"} <= set(asked)
    emulated(0)
    right = results(tensors, "cuda")
    assert all(torch.equal(right[n][name], part) for n in (0, 1) for name, part in found[n].items())


CASES = [
    (9, 6, 5, 400, {"cells": True, "candidate": "sigmoid"}),
    (7, 37, 1, 500, {"sequence": False}),
    (33, 16, 2, 512, {}),
    (1, 1, 3, 769, {}),
    (12, 130, 2, 600, {}),
    (20, 17, 1, 1000, {}),
    (6, 300, 2, 1024, {"cells": True}),
]


@on_device
@both_precisions
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("units", wide.UNITS)
def test_outputs_and_gradients_against_float64(precision, case, per_sample, units, monkeypatch):
    length, batch, inputs, hidden, options = case
    monkeypatch.setattr(wide, "UNITS", (units,))
    monkeypatch.setattr(steps, "forward", None)  # nothing may be left to it
    if wide.layout_for(1, batch, hidden, precision == "highest", gpu.properties(torch.device("cuda"))) is None:
        pytest.skip("it does not fit on this device")
    tensors = operands(length, batch, inputs, hidden, per_sample)
    for kind, values in zip(("outputs", "gradients"), errors(tensors, **options)):
        assert all(value < LIMITS[precision][kind] for value in values.values()), values


@on_device
@both_precisions
@pytest.mark.parametrize("hidden", [512, 1000])
def test_the_same_bits_from_run_to_run(precision, hidden):
    check_same_bits(operands(50, 40, 1, hidden))


@on_device
def test_batches_may_grow_and_shrink():
    """A kernel that was launched with little shared memory is given more, and then less again."""
    whole = operands(5, 700, 1, 500)
    for batch in (10, 700, 60):
        tensors = whole | {name: whole[name][:batch].contiguous() for name in ("h0", "c0")}
        tensors["x"] = whole["x"][:, :batch].contiguous()
        assert max(errors(tensors)[0].values()) < LIMITS["highest"]["outputs"]


@on_device
def test_several_streams_at_once_wait_for_each_other():
    """More blocks than the device has room for: a kernel whose blocks run together waits until all of them can."""
    tensors = operands(40, 16, 1, 1000)
    right = gated_lstm(**tensors).h_n
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for stream in streams:
        with torch.cuda.stream(stream):
            found.append(gated_lstm(**tensors).h_n)
    torch.cuda.synchronize()
    assert all(torch.equal(one, right) for one in found)
