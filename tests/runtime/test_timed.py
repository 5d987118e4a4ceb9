"""Streams in time: without an end, or at times that nobody knows beforehand; and nothing drifts."""

import copy
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from networks import KINDS, deep_network, network, raw_network, raw_sequences, thresholded
from safetensors.numpy import save
from test_stream import samples

import glstm
from glstm import GLSTM, PLSTM, Clockwork, GatedLSTM, Periodic, SequenceModel, deploy
from glstm.errors import StreamWarning, UserError
from glstm.runtime.ticks import MODULUS, Scale
from glstm.runtime.timed_runtime import TimedRuntime
from glstm.times import PLAIN, Frame

V_T = 0.01
STEPS = 150
ENDS = [kind for kind in KINDS if type(KINDS[kind]().gate).__name__ == "Gaussian"]
ENDLESS = [kind for kind in KINDS if kind not in ENDS]


def endless(model, threshold=None, reads=None) -> TimedRuntime:
    runtime = deploy(model, threshold=threshold, reads=reads)
    assert isinstance(runtime, TimedRuntime)
    return runtime


def irregular(steps: int = STEPS, seed: int = 2) -> np.ndarray:
    """With gaps in which whole windows, and whole periods, pass."""
    draws = np.random.default_rng(seed)
    return 0.3 + np.cumsum(draws.exponential(0.5, steps) * np.where(draws.random(steps) < 0.05, 60, 1))


def long_samples(model, steps: int = STEPS) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((steps, model.layer.input_size)).astype(np.float32)


def said(model, x, times=None, threshold=V_T) -> np.ndarray:
    """The model's outputs after every step, in double precision."""
    model = copy.deepcopy(model).double()
    model.reads = "every"
    at = None if times is None else torch.from_numpy(times)
    return thresholded(model, threshold, torch.from_numpy(x).double().unsqueeze(1), at)[:, 0].numpy()


def quietly(stream, x, times=None) -> np.ndarray:
    """All outputs; that a stream has passed its last gate is another test's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamWarning)
        if times is None:
            return np.array([stream.step(sample) for sample in x])
        given = torch.from_numpy(times) if len(times) % 2 else times.tolist()  # as people have it
        return np.array([stream.step(sample, time) for sample, time in zip(x, given, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [0.0, V_T, 0.4])
def test_every_sample_as_the_model(kind, threshold):
    model = deep_network(kind)
    x = long_samples(model)
    runtime = endless(model, threshold)
    for times in (None, irregular()):
        expected = said(model, x, times, threshold)
        assert np.abs(quietly(runtime.stream(), x, times) - expected).max() < 1e-6
        whole = runtime(x, times)
        assert np.abs(whole - expected[-1]).max() < 1e-6


def test_blocks_are_steps():
    model = network("gates that come back")
    x, times = long_samples(model), irregular()
    for given in (None, times):
        stream, other = endless(model, V_T).stream(), endless(model, V_T, reads="last").stream()
        expected = quietly(stream, x, given)
        for part in (slice(0, 1), slice(1, 70), slice(70, 70), slice(70, STEPS)):
            other.take(x[part], None if given is None else given[part])
        assert other.position == STEPS
        assert other.time == stream.time == (STEPS if given is None else times[-1])
        assert np.array_equal(other.output(), expected[-1])


@pytest.mark.parametrize("start", [10**6, 10**9, 2.0**40 + 0.25])
@pytest.mark.parametrize("kind", ["gates that come back", "Phased LSTM", "clocks"])
def test_far_from_the_origin_nothing_has_drifted(kind, start):
    """The layer in double precision is exact there, by the remainder of a division."""
    model = network(kind)
    x, times = long_samples(model), start + np.arange(STEPS)
    runtime = endless(model, V_T)
    if start >= runtime.plan.scale.longest:
        with pytest.raises(ValueError, match=r"may lie up to .* apart, not .*: reset\(\) the stream"):
            runtime.stream().step(x[0], start)
        return
    assert np.abs(quietly(runtime.stream(), x, times) - said(model, x, times)).max() < 1e-6


@pytest.mark.parametrize("steps", [10**9, 10**10])
@pytest.mark.parametrize("tau", [8.0, 7.3])
def test_counted_for_as_long(steps, tau, tmp_path):
    """A stream that has counted so far opens its units where the layer does; later also after 2^64 ticks and more.
    There a double rounds times to 2e-6, so the layer itself is not more exact."""
    gate = Periodic(mu=(3.9, 4.1), sigma=0.4, tau=tau)
    model = SequenceModel(GatedLSTM(2, 9, gate=gate), torch.nn.Linear(9, 2)).eval()
    period = Fraction(model.layer.tau_l0[0].item())
    while not 0.4 < (steps - 4) % period / period < 0.6:  # where all units are closed
        steps += 1
    stream = endless(model, V_T).stream()
    about = {"network": stream.network.fingerprint, "position": str(steps)}
    (tmp_path / "state").write_bytes(save({"numbers": stream._numbers}, about))
    stream.load(tmp_path / "state")
    assert stream.position == steps
    x = long_samples(model)
    expected = said(model, x, steps + np.arange(1.0, STEPS + 1))
    assert np.abs(quietly(stream, x) - expected).max() < (1e-6 if steps < 2**32 else 1e-5)
    assert (np.abs(np.diff(expected, axis=0)) > 0).any()


def test_a_state_of_long_ago_stays_finished(tmp_path):
    model = network("g-LSTM")
    stream = endless(model, V_T).stream()
    for position in (200, 2**34, 2**40):
        about = {"network": stream.network.fingerprint, "position": str(position)}
        (tmp_path / "state").write_bytes(save({"numbers": stream._numbers}, about))
        stream.load(tmp_path / "state")
        assert stream.finished


@pytest.mark.parametrize("unit", [1.0, 0.25, 3.0, 7.3e-4])
def test_a_clock_is_right_to_a_tick_for_ever(unit):
    scale = Scale.of(Frame(-5.0, unit), 0.7, 3e4)
    clock = scale.clock()
    for count in (1, 10**6, 10**9, 10**15):
        exact = (count + 5) / Fraction(unit) * Fraction(2) ** scale.bits
        ours = clock.begin + count * clock.ticks + (count * clock.fine >> 64)
        assert min((ours - exact) % MODULUS, (exact - ours) % MODULUS) <= 1.5


def test_scalar_and_array_times_are_the_same_ticks():
    times = np.concatenate([irregular(), -irregular()[:20], 2.0**40 + irregular()])
    for scale in (Scale(PLAIN, 30), Scale(Frame(17.0, 0.3), 12), Scale(PLAIN, -3)):
        assert [scale.moment(float(time)) % MODULUS for time in times] == scale.moments(times).tolist()


def test_periods_are_exact_as_float32():
    model = SequenceModel(
        GatedLSTM(1, 40, gate=Periodic(mu=(0.0, 50.0), sigma=(0.01, 30.0), tau=(0.004, 5e4))), torch.nn.Linear(40, 1)
    )
    plan = endless(model, V_T).plan
    layer = plan.layers[0]
    tau = model.layer.tau_l0.detach().double().numpy()[layer.unit_numbers]
    assert np.array_equal(layer.period.astype(float) * 2.0**-plan.scale.bits, tau)


def test_a_unit_that_is_always_open_and_one_cut_off_by_its_period():
    torch.manual_seed(0)
    layer = PLSTM(1, 4, tau=torch.tensor([7.0, 7.0, 5.5, 9.0]), s=2.0, r=torch.tensor([0.5, 1.6, 3.0, 0.9]))
    model = SequenceModel(layer, torch.nn.Linear(4, 2)).eval()
    wide = SequenceModel(GatedLSTM(1, 3, gate=Periodic(mu=2.0, sigma=6.0, tau=4.0)), torch.nn.Linear(3, 2)).eval()
    for one in (model, wide):
        x = long_samples(one)
        for times in (None, irregular()):
            found = quietly(endless(one, V_T).stream(), x, times)
            assert np.abs(found - said(one, x, times)).max() < 1e-6


def test_a_unit_that_never_opens_is_left_out():
    layer = PLSTM(1, 4, tau=7.0, s=2.0, r=torch.tensor([0.5, 0.9, 8.0, 0.9]))
    model = SequenceModel(layer, torch.nn.Linear(4, 2)).eval()
    runtime = deploy(model, threshold=0.5)
    assert runtime.units == (3,)
    x = long_samples(model)
    assert np.abs(quietly(runtime.stream(), x) - said(model, x, threshold=0.5)).max() < 1e-6
    layer.set_gate(r=8.0)
    with pytest.raises(ValueError, match=r"no unit of layer 1 ever opens above the threshold 0.5"):
        deploy(model, threshold=0.5)


@pytest.mark.parametrize("kind", ["stack", "Phased LSTM", "gates that come back", "LSTM"])
def test_saved_copied_and_reset(kind, tmp_path):
    model = network(kind)
    x = long_samples(model)
    for times in (None, irregular()):
        runtime = endless(model, V_T)
        expected = quietly(runtime.stream(), x, times)
        for steps in (0, 1, 17, 60):
            stream = runtime.stream()
            rest = None if times is None else times[steps:]
            quietly(stream, x[:steps], None if times is None else times[:steps])
            stream.save(tmp_path / "state")
            later = endless(model, V_T).stream()
            later.load(tmp_path / "state")
            copies = [copy.copy(stream), later, pickle.loads(pickle.dumps(runtime)).stream()]
            copies[2].load(tmp_path / "state")
            for one in copies:
                assert one.position == steps
                assert np.array_equal(quietly(one, x[steps:], rest), expected[steps:])
            stream.reset()
            assert stream.time is None
            assert np.array_equal(quietly(stream, x, times), expected)


def test_states_that_do_not_fit_are_named(tmp_path):
    stream = endless(network("stack"), V_T).stream()
    about = {"network": stream.network.fingerprint, "position": "3"}
    for wrong in ({"time": "x"}, {"time": "inf"}, {"time": "0x1p0", "position": "0"}, {"position": "-1"}):
        (tmp_path / "wrong").write_bytes(save({"numbers": stream._numbers}, {**about, **wrong}))
        with pytest.raises(UserError, match="is not the state of a stream of this network"):
            stream.load(tmp_path / "wrong")
    deploy(network("stack"), 60, V_T).stream().save(tmp_path / "other")
    with pytest.raises(UserError, match="is the state of a stream of another network"):
        stream.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([1.0, 1.0], r"times must increase, but this sample is at 1, after one at 1"),
        ([1.0, 0.5], r"times must increase, but this sample is at 0.5, after one at 1"),
        ([float("nan")], "the time of a sample must be a finite number, not nan"),
        ([True], "the time of a sample must be a finite number, not True"),
        (["1"], "the time of a sample must be a finite number, not '1'"),
        ([1.0, None], r"the samples of this stream have times: give all of them one, or none, or reset\(\) it"),
        ([None, 1.0], r"the samples of this stream are counted: give all of them a time, or none, or reset\(\) it"),
        ([1.0, 1e12], r"two samples may lie up to 4.29e\+09 apart, not 1e\+12"),
    ],
)
def test_times_that_cannot_be_are_refused(times, says):
    stream = endless(network("g-LSTM"), V_T).stream()
    for time in times[:-1]:
        stream.step(0.5, time)
    before = stream.position, stream.time, stream.output()
    with pytest.raises(ValueError, match=says):
        stream.step(0.5, times[-1])
    assert (stream.position, stream.time) == before[:2]
    assert np.array_equal(stream.output(), before[2])
    stream.reset()
    stream.step(0.5)


def test_blocks_that_cannot_be_are_refused():
    stream = endless(network("stack"), V_T).stream()
    with pytest.raises(ValueError, match=r"samples must be \(N, 3\), but have shape \(5, 2\)"):
        stream.take(np.zeros((5, 2)))
    for wrong in ([1, 2, 2], [1, 2], [1, 2, np.inf]):
        with pytest.raises(ValueError, match="times must be 3 increasing numbers, one for each sample"):
            stream.take(np.zeros((3, 3)), wrong)
    stream.take(np.zeros((3, 3)), [1, 2, 3])
    with pytest.raises(ValueError, match="times must increase, but this sample is at 3, after one at 3"):
        stream.take(np.zeros((1, 3)), [3.0])


@pytest.mark.parametrize("kind", ENDS)
def test_past_its_last_gate_a_stream_says_so_once(kind):
    model = network(kind)
    stream = endless(model, V_T).stream()
    x = samples(model)[0]
    while not stream.finished:
        assert stream.position < 200
        stream.step(x)
    before = stream.output()
    with pytest.warns(StreamWarning, match=r"the last gate of this network closed at time .*: later samples") as warned:
        assert all(np.array_equal(stream.step(scale * x), before) for scale in (1, 10))
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert np.array_equal(stream.output(), before)
    stream.reset()
    assert not stream.finished


@pytest.mark.parametrize("kind", ENDLESS)
def test_gates_that_come_back_never_finish(kind):
    model = network(kind)
    runtime = endless(model, V_T, reads="last")
    stream = runtime.stream()
    stream.take(long_samples(model, 2000))
    assert not stream.finished
    assert "without an end" in repr(runtime)
    before = stream.output()
    stream.take(long_samples(model, 100))
    assert not np.array_equal(stream.output(), before)


def test_where_the_head_reads():
    model = network("gates that come back")
    x = long_samples(model)
    every = quietly(endless(model, V_T).stream(), x)
    stream = endless(model, V_T, reads=[3, 50]).stream()
    found = {n: y for n, sample in enumerate(x, 1) if (y := stream.step(sample)) is not None}
    assert list(found) == [3, 50]
    assert np.array_equal(found[50], every[49])
    silent = endless(model, V_T, reads="last").stream()
    assert all(silent.step(sample) is None for sample in x)
    assert np.array_equal(silent.output(), every[-1])
    batch = torch.from_numpy(np.stack([x, -x], 1))
    whole = endless(model, V_T, reads="every")(batch)
    assert whole.shape == (STEPS, 2, 3)
    assert np.allclose(whole[:, 0], every, atol=1e-6)
    assert endless(model, V_T)(batch).shape == (2, 3)  # as the model reads


@pytest.mark.parametrize("reads", ["every", "mean", "max"])
@pytest.mark.parametrize("missing", ["refuse", "mask"])
def test_raw_numbers_and_pooled_steps(reads, missing):
    model, x = raw_network(missing, reads=reads), raw_sequences(missing)[:, 0].numpy()
    stream = endless(model, V_T).stream()
    ours = quietly(stream, x)
    exact = copy.deepcopy(model).double()
    for steps in (7, 60):
        expected = thresholded(exact, V_T, torch.from_numpy(x[:steps]).double()[:, None])
        assert np.allclose(ours[steps - 1], expected[-1].flatten()[-3:], atol=3e-6)


def test_what_a_period_costs():
    model = network("gates that come back")
    runtime = endless(model, V_T)
    model.layer.threshold = V_T
    longest = int(np.ceil(model.layer.tau_l0.max().item()))
    assert runtime.plan.steps == longest
    k = model.layer.openness(2 * longest)[0, longest:]
    assert runtime.openness == pytest.approx(k.gt(0).double().mean().item())
    assert runtime.lstm_ops == glstm.count_ops(longest, 13, 1)
    stream = runtime.stream()
    assert runtime.memory.state >= sum(
        array.nbytes for array in (stream._words, stream._windows, stream._agenda, stream._numbers)
    )
    clocks = endless(network("clocks"))
    assert clocks.plan.steps == 16
    assert clocks.openness == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 8 + 1 / 16) / 5)
    assert deploy(network("LSTM")).openness == 1
    once = endless(network("g-LSTM"), V_T)
    known = deploy(network("g-LSTM"), once.plan.steps, V_T)
    assert once.openness == known.openness
    pairs = np.count_nonzero(known.plan.layers[0].table)
    assert once.ops == known.ops + 9 * pairs


def test_networks_that_were_trained_at_other_times():
    layer = GLSTM(1, 6)
    model = SequenceModel(layer, torch.nn.Linear(6, 2)).eval()
    with pytest.raises(ValueError, match=r"wait for the first times that they see: train it, call layer.fit_times"):
        deploy(model)
    times = 1.7e9 + 60.0 * irregular()
    layer.fit_times(times)
    runtime = endless(model, V_T)
    x = long_samples(model)
    with pytest.raises(
        ValueError, match=r"without a time a sample is at 1, 2, .*, but this network was trained at times"
    ):
        runtime.stream().step(x[0])
    with pytest.raises(ValueError, match="without a time a sample is at 1, 2"):
        runtime(x)
    assert np.abs(quietly(runtime.stream(), x, times) - said(model, x, times)).max() < 1e-6
    assert np.abs(runtime(x, times) - said(model, x, times)[-1]).max() < 1e-6
    with pytest.raises(ValueError, match="times must be 150 increasing numbers, one for each step, but are 149"):
        runtime(x, times[1:])


def test_what_cannot_be_deployed_without_steps_is_named():
    class Own(glstm.Gate):
        def openness(self, times, unit, training):
            return times.unsqueeze(-1).remainder(2)

    own = SequenceModel(GatedLSTM(1, 4, gate=Own()), torch.nn.Linear(4, 2))
    with pytest.raises(ValueError, match="a Own gate does not say when its units open, so deploy must know the steps"):
        deploy(own)
    assert deploy(own, 5).units == (4,)
    both = SequenceModel(GLSTM(1, 4, bidirectional=True, mu=(1, 9), sigma=2.0), torch.nn.Linear(8, 2))
    with pytest.raises(ValueError, match="a bidirectional layer reads a sequence from both ends"):
        deploy(both)
    tiny = SequenceModel(
        GatedLSTM(1, 2, gate=Periodic(mu=1.0, sigma=1.0, tau=torch.tensor([1e-5 / 3, 1e14]))), torch.nn.Linear(2, 2)
    )
    with pytest.raises(ValueError, match=r"a period of 3.33333e-06 is too short to be counted exactly beside gates"):
        deploy(tiny)
    with pytest.raises(ValueError, match=r"the times of this stream's steps are known already, so it takes none"):
        deploy(network("g-LSTM"), 60).stream().step(1.0, 3.0)


def test_a_clock_of_any_period():
    layer = GatedLSTM(1, 5, gate=Clockwork(torch.tensor([0.5, 1.0, 2.5, 3.7, 16.0])))
    model = SequenceModel(layer, torch.nn.Linear(5, 2)).eval()
    x = long_samples(model)
    for times in (None, irregular()):
        assert np.abs(quietly(deploy(model).stream(), x, times) - said(model, x, times)).max() < 1e-6
