"""Gates: time in, openness out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from glstm import GatedLSTM
from glstm.gates import GATES, SMALLEST, Clockwork, Gate, Gaussian, Open, Periodic, Phased, apply_threshold, draw

TIMES = torch.arange(1, 11, dtype=torch.float64)


def column(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def test_gaussian_is_the_papers_formula_without_a_factor_two():
    k = Gaussian().openness(TIMES, {"mu": column(4.0), "sigma": column(3.0)}, True)
    assert k.shape == (10, 1)
    for t, value in zip(TIMES.tolist(), k[:, 0].tolist(), strict=True):
        assert value == pytest.approx(math.exp(-((t - 4) ** 2) / 9), rel=1e-14)


@given(mu=st.floats(-5, 15), sigma=st.floats(0.5, 20), sign=st.sampled_from([-1, 1]))
def test_gaussian_gradients(mu, sigma, sign):
    unit = (column(mu).requires_grad_(), column(sign * sigma).requires_grad_())
    assert gradcheck(lambda mu, sigma: Gaussian().openness(TIMES, {"mu": mu, "sigma": sigma}, True), unit)


def test_sigma_may_cross_zero_and_leave_it_again():
    mu = column(4.0)
    for value in (0.0, -0.0, SMALLEST / 2, -SMALLEST / 2):
        sigma = column(value).requires_grad_()
        k = Gaussian().openness(TIMES, {"mu": mu, "sigma": sigma}, True)
        assert k.isfinite().all()
        assert k[3, 0] == 1
        k.sum().backward()
        assert sigma.grad is not None
        assert sigma.grad.isfinite().all()
    # At the floor the width still has a slope: a step that lies just beside mu pulls it open.
    sigma = column(0.0).requires_grad_()
    Gaussian().openness(column(4.0 + SMALLEST)[0:1], {"mu": mu, "sigma": sigma}, True).sum().backward()
    assert sigma.grad is not None
    assert sigma.grad.item() > 0
    mirrored = Gaussian().openness(TIMES, {"mu": mu, "sigma": column(-2.0)}, True)
    assert torch.equal(mirrored, Gaussian().openness(TIMES, {"mu": mu, "sigma": column(2.0)}, True))


def nearest_bell(t: float, mu: float, sigma: float, tau: float) -> float:
    return max(math.exp(-(((t - mu - n * tau) / sigma) ** 2)) for n in range(-200, 200))


@given(mu=st.floats(-30, 30), sigma=st.floats(0.1, 50), tau=st.floats(0.5, 40), signs=st.sampled_from([-1, 1]))
def test_periodic_is_the_gaussian_of_the_nearest_moment(mu, sigma, tau, signs):
    unit = {"mu": column(mu), "sigma": column(signs * sigma), "tau": column(-signs * tau)}
    k = Periodic().openness(TIMES, unit, True)
    assert k.shape == (10, 1)
    expected = [nearest_bell(t, mu, sigma, tau) for t in TIMES.tolist()]
    assert k[:, 0].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(mu=st.floats(-5, 15), sigma=st.floats(0.5, 20), tau=st.floats(1.5, 20), sign=st.sampled_from([-1, 1]))
def test_periodic_gradients(mu, sigma, tau, sign):
    away = torch.remainder(TIMES - mu, tau) / tau - 0.5
    times = TIMES[away.abs() > 1e-4]  # halfway between two pulses k has a corner
    unit = [column(value).requires_grad_() for value in (mu, sign * sigma, sign * tau)]
    names = Periodic.names
    assert gradcheck(lambda *u: Periodic().openness(times, dict(zip(names, u, strict=True)), True), unit)


def test_a_change_of_tau_moves_a_pulse_by_as_many_changes_as_there_are_periods():
    mu, tau = column(2.0).requires_grad_(), column(10.0).requires_grad_()
    times = torch.tensor([3.0, 13.0, 43.0, -17.0], dtype=torch.float64)
    k = Periodic().openness(times, {"mu": mu, "sigma": column(2.0), "tau": tau}, True)[:, 0]
    slopes = [torch.autograd.grad(one, (mu, tau), retain_graph=True) for one in k]
    assert [(by_tau / by_mu).item() for by_mu, by_tau in slopes] == [0, 1, 4, -2]


def test_periodic_has_no_jump_halfway_and_no_drift_after_a_million_periods():
    unit = {"mu": column(0.0), "sigma": column(3.0), "tau": column(7.0)}
    halfway = torch.tensor([3.5 - 1e-9, 3.5, 3.5 + 1e-9], dtype=torch.float64)
    assert Periodic().openness(halfway, unit, True).std() < 1e-9
    single = {name: value.float() for name, value in unit.items()} | {"tau": torch.tensor([7.3])}
    exact = {name: value.double() for name, value in single.items()}
    late = torch.arange(16_000_000, 16_000_100, dtype=torch.float32)  # the last whole numbers that float32 holds
    k = Periodic().openness(late, single, True)
    assert torch.allclose(k.double(), Periodic().openness(late.double(), exact, True), rtol=1e-5)


def test_tau_may_cross_zero_and_leave_it_again():
    for value in (0.0, -0.0, SMALLEST / 2, -SMALLEST / 2):
        unit = {"mu": column(4.0), "sigma": column(3.0), "tau": column(value)}
        for one in unit.values():
            one.requires_grad_()
        k = Periodic().openness(TIMES, unit, True)
        assert (k > 0.99).all()  # the next pulse is always near
        k.sum().backward()
        assert all(one.grad is not None and one.grad.isfinite().all() for one in unit.values())


def test_periods_and_widths_are_given_above_zero():
    for values, message in (
        ({"tau": 0.0}, "tau must be above 0, not 0: it is a period, in the unit of the times"),
        ({"tau": (-1.0, 5.0)}, "tau must be above 0, not -1"),
        ({"sigma": [1.0, 2.0, -3.0]}, "sigma must be above 0, not -3: it is a width"),
    ):
        with pytest.raises(ValueError, match=message):
            Periodic(**values).draw(next(iter(values)), 3)
    assert Periodic(mu=(3.0, 5.0)).draw("mu", 9).diff().min() >= 0


@pytest.mark.parametrize("training", [True, False])
def test_phased_rises_falls_and_leaks(training):
    gate = Phased(alpha=0.01)
    unit = {"tau": column(20.0), "s": column(3.0), "r": column(0.4)}
    times = torch.tensor([3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 22.5, 23.0, 27.0], dtype=torch.float64)
    k = gate.openness(times, unit, training)[:, 0]
    leak = [0.01 * 0.4, 0.01 * 0.5, 0.01 * 0.975] if training else [0.0, 0.0, 0.0]
    expected = [0.0, 0.5, 1.0, 0.5, *leak, 0.0, 1.0]
    assert k.tolist() == pytest.approx(expected, abs=1e-12)


def test_phased_as_appendix_c_starts_it_is_centred_like_its_gaussian_twin():
    times = torch.arange(1, 1001, dtype=torch.float64)
    for s in (250.0, 450.0, 650.0):
        k = Phased().openness(times, {"tau": column(1000.0), "s": column(s), "r": column(0.1)}, False)[:, 0]
        assert times[k.argmax()] == s + 50


def test_periods_of_a_phased_gate_may_be_drawn_evenly_in_their_logarithm():
    torch.manual_seed(0)
    tau = Phased(tau=(1.0, 1000.0), log_tau=True).draw("tau", 3000)
    assert (tau.min() >= 1, tau.max() <= 1000) == (True, True)
    assert [(tau < limit).double().mean().item() for limit in (10.0, 100.0)] == pytest.approx([1 / 3, 2 / 3], abs=0.03)
    assert Phased(tau=7.0, log_tau=True).draw("tau", 3).tolist() == [7.0] * 3
    for bad in ((0.0, 9.0), (9.0, 1.0)):
        with pytest.raises(ValueError, match="tau"):
            Phased(tau=bad, log_tau=True).draw("tau", 3)


@given(tau=st.floats(5, 30), s=st.floats(-10, 10), r=st.floats(0.1, 0.9))
def test_phased_gradients(tau, s, r):
    """Also of an r that is reflected at 1."""
    phase = torch.remainder(TIMES - s, tau) / tau
    corners = torch.stack([(phase - c).abs() for c in (0, r / 2, r, 1)])
    times = TIMES[corners.min(0).values > 1e-4]  # finite differences do not work across a corner
    names = ("tau", "s", "r")
    for moved in (r, 2 - r, r - 2):
        unit = [column(value).requires_grad_() for value in (tau, s, moved)]
        assert gradcheck(lambda *u: Phased().openness(times, dict(zip(names, u, strict=True)), True), unit)


SHARES = {0.4: 0.4, 1.0: 1.0, 1.3: 0.7, -0.2: 0.2, 2.5: 0.5, -1.6: 0.4, 7.3: 0.7, -500.9: 0.9}


@pytest.mark.parametrize("r", SHARES)
@pytest.mark.parametrize("training", [True, False])
def test_the_open_share_of_a_phased_gate_is_reflected_at_its_ends(r, training):
    """An optimiser may move r anywhere: the gate is that of a share in (0, 1], which its gradient still moves."""
    times = torch.linspace(0.03, 60.03, 400, dtype=torch.float64)
    share, found, slopes = SHARES[r], [], []
    for value in (r, share):
        unit = {name: column(one).requires_grad_() for name, one in (("tau", 20.0), ("s", 3.0), ("r", value))}
        k = Phased().openness(times, unit, training)
        found.append(k)
        slopes.append(torch.autograd.grad((k * torch.linspace(-1, 2, 400)[:, None]).sum(), list(unit.values())))
    assert torch.allclose(*found, rtol=0, atol=1e-9)
    assert (found[0] < 0.01).double().mean() > 0.9 * (1 - share)
    turned = -1 if r < 0 else 1
    turned *= 1 if abs(r) % 2 <= 1 else -1
    for one, other, sign in zip(*slopes, (1, 1, turned), strict=True):
        assert torch.allclose(one, sign * other, rtol=1e-8)
        assert one.abs().item() > 1e-3


@pytest.mark.parametrize("r", [0.0, 2.0, -4.0, 1e-9, 2 + 1e-9])
def test_a_phased_gate_that_is_nearly_closed_can_still_open(r):
    unit = {"tau": column(20.0), "s": column(3.0), "r": column(r).requires_grad_()}
    k = Phased().openness(torch.tensor([3.0 + 2e-6], dtype=torch.float64), unit, True)
    (slope,) = torch.autograd.grad(k.sum(), unit["r"])
    assert k.isfinite().all()
    assert slope.isfinite().all()
    assert slope.item() != 0


def test_clockwork_ticks_at_multiples_of_its_period():
    period = Clockwork((1, 2, 5)).draw("period", 6)
    assert period.tolist() == [1, 1, 2, 2, 5, 5]
    k = Clockwork().openness(TIMES.float(), {"period": period}, True)
    for n, t in enumerate(range(1, 11)):
        assert k[n].tolist() == [float(t % p == 0) for p in (1, 1, 2, 2, 5, 5)]
    real = torch.tensor([4.0, 4.9, 5.0, 5.99, 6.01])
    assert Clockwork().openness(real, {"period": torch.tensor([5.0])}, True)[:, 0].tolist() == [0, 0, 1, 1, 0]


STEPS_AND_UNITS = [(0.1, 0.1), (1.0, 3.0), (1.0, 7.0), (1 / 24, 1 / 24), (60.0, 60.0), (0.3, 0.9)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("step", "unit"), STEPS_AND_UNITS)
def test_no_tick_of_a_clock_is_lost_by_rounding(step, unit, dtype):
    """Samples come at the very moments of the ticks, in relative times and periods that are rounded differently."""
    number, periods, origin = torch.arange(3000), torch.tensor([1, 2, 3, 4, 7, 30]), 5.0
    times = origin + step * number.double()
    layer = GatedLSTM(1, 6, gate=Clockwork(step * periods.double()), origin=origin, unit=unit, dtype=dtype)
    since_tick = torch.remainder(number[:, None], periods)  # in steps: whole numbers, which are exact
    right = since_tick * step < unit - step / 2 if unit >= step else since_tick == 0
    for made in (layer, layer.double()):  # 64 bits, with periods that were rounded to 32
        assert torch.equal(made.openness(times)[0].bool(), right)
        pulses = made.gate.pulses(made.gate_values("_l0"))
        assert torch.equal(pulses.openness((times - origin) / unit).bool(), right)


def test_clockwork_periods_must_be_positive():
    with pytest.raises(ValueError, match="every clock period must be above 0, but got 0"):
        Clockwork((1, 0)).draw("period", 4)


def test_open_is_always_open():
    assert (Open().openness(TIMES, {}, True) == 1).all()


def test_gates_keep_large_times_apart_in_half_precision():
    """In bfloat16 itself, 783 and 784 would be the same moment."""
    times = torch.tensor([783.0, 784.0])
    unit = {"mu": torch.tensor([784.0], dtype=torch.bfloat16), "sigma": torch.tensor([1.0], dtype=torch.bfloat16)}
    assert Gaussian().openness(times, unit, True)[:, 0].tolist() == pytest.approx([math.exp(-1), 1.0])


def test_threshold_closes_exactly_and_only_at_or_below_it():
    k = torch.tensor([0.0, 0.1, 0.1 + 1e-6, 0.5, 1.0], requires_grad=True)
    cut = apply_threshold(k, 0.1)
    assert cut.tolist() == [0, 0, k[2].item(), 0.5, 1]
    cut.sum().backward()
    assert k.grad is not None
    assert k.grad.tolist() == [0, 0, 1, 1, 1]


def test_values_are_drawn_from_a_number_a_range_or_a_tensor():
    assert draw(3, 4, "mu").tolist() == [3, 3, 3, 3]
    drawn = draw((10, 20), 1000, "mu")
    assert 10 <= drawn.min() < 11
    assert 19 < drawn.max() <= 20
    given_values = torch.tensor([1.0, 2.0])
    assert draw(given_values, 2, "mu").tolist() == [1, 2]
    for bad, message in (
        (torch.zeros(3), r"mu as a tensor must have shape \(2,\)"),
        ((2.0, 1.0), r"mu as a range must be \(low, high\)"),
        (float("nan"), "mu must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(bad, 2, "mu")


def test_moments_from_a_range_come_in_order_and_given_ones_as_they_are():
    drawn = Gaussian((10, 20), (1, 5)).draw("mu", 50)
    assert drawn.equal(drawn.sort().values)
    assert drawn.min() >= 10
    assert drawn.max() <= 20
    widths = Gaussian((10, 20), (1, 5)).draw("sigma", 50)
    assert not widths.equal(widths.sort().values)
    given = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    assert Gaussian(given).draw("mu", 3).equal(given)


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 1.7e-38), (torch.float64, 3.4e-308)])
def test_a_gaussian_never_has_a_subnormal_value(dtype, least):
    """It goes from normal numbers to 0 at once: torch takes many times as long for what lies between."""
    times = torch.linspace(0, 40, 5000, dtype=dtype)
    unit = {"mu": torch.zeros(1, dtype=dtype, requires_grad=True), "sigma": torch.ones(1, dtype=dtype)}
    k = Gaussian(mu=0.0, sigma=1.0).openness(times, unit, training=True)[:, 0]
    plain = torch.exp(-(times**2))
    assert torch.equal(k[plain > least], plain[plain > least])
    assert (k[plain < least / 1.02] == 0).all()
    assert (k == 0).any()
    (gradient,) = torch.autograd.grad(k.sum(), unit["mu"])
    assert torch.isclose(gradient[0], (2 * times * plain).sum(), rtol=1e-5)


# Of each gate, values of which some are at the ends of what its formula allows.
ODD_VALUES: dict[str, dict[str, list[float]]] = {
    "open": {},
    "gaussian": {"mu": [4.0, -3.5, 60.0, 10.0], "sigma": [3.0, -8.0, 0.0, 1e3]},
    "periodic": {
        "mu": [4.0, -3.5, 60.0, 10.0, 1.0, 2.0],
        "sigma": [3.0, -2.0, 0.0, 1e3, 0.5, 4.0],
        "tau": [20.0, -7.25, 9.0, 6.0, 1000.0, 0.5],
    },
    "phased": {
        "tau": [20.0, -7.0, 9.0, 6.0, 5.5, 30.0],
        "s": [3.0, -40.0, 2.0, 0.25, 1.0, 200.0],
        "r": [0.4, -0.05, 1.0, 1.5, 2.5, 0.0],
    },
    "clockwork": {"period": [1.0, 5.0, 0.5, 7.25, 128.0]},
}


@pytest.mark.parametrize("name", GATES)
def test_pulses_say_when_units_open(name):
    unit = {key: torch.tensor(values, dtype=torch.float64) for key, values in ODD_VALUES[name].items()}
    gate = GATES[name]()
    pulses = gate.pulses(unit)
    assert pulses is not None
    assert all(value.dtype == torch.float64 for value in (pulses.at, pulses.width, pulses.period, pulses.start))
    times = torch.linspace(-100, 300, 6401, dtype=torch.float64)  # whole numbers and quarters are among them
    # A triangle of the least width, 15e-6 around 200, has steps of 1e-9 in float64.
    assert torch.allclose(pulses.openness(times), gate.openness(times, unit, False), rtol=0, atol=1e-8)
    if name != "open":
        assert len(pulses.openness(times).unique()) > 1


def test_pulses_have_no_gradient_and_are_for_single_precision_too():
    mu = torch.tensor([4.0, 5.0], requires_grad=True)
    pulses = Gaussian().pulses({"mu": mu, "sigma": torch.tensor([-3.0, 2.0])})
    assert pulses.at.dtype == torch.float64
    assert not pulses.at.requires_grad
    assert pulses.width.tolist() == [3.0, 2.0]


def test_a_class_with_its_own_formula_does_not_inherit_when_another_gate_opens():
    class Wider(Gaussian):
        def openness(self, times, unit, training):
            return super().openness(times, unit, training) ** 0.5

    class Named(Gaussian):
        pass

    class Own(Gate):
        def openness(self, times, unit, training):
            return torch.zeros_like(times).unsqueeze(-1)

    unit = {"mu": column(4.0), "sigma": column(3.0)}
    assert Wider().pulses(unit) is None
    assert Own().pulses(unit) is None
    assert Named().pulses(unit) is not None
