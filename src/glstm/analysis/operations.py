"""How many operations a network needs: the paper's formulas, and the exact count when frozen contributions are stored.

The paper counts a multiply or an add as one operation and a nonlinear function as five.
"""

from torch import Tensor

GATE_OPS = 13  # the paper's figure for computing one k; natural counting gives 14 to 16


def count_ops(steps: int, hidden: int, inputs: int, openness: float | None = None) -> float:
    """The paper's count for one sequence through one layer.

    Without `openness`: N_LSTM = T H (8D + 8H + 29). With it (the open share of all gates, between 0 and 1):
    openness x N_LSTM + N_gate, where N_gate = 13 T H.
    """
    lstm = steps * hidden * (8 * inputs + 8 * hidden + 29)
    if openness is None:
        return lstm
    if not 0 <= openness <= 1:
        raise ValueError(f"openness is a share between 0 and 1, not {openness!r}")
    return openness * lstm + GATE_OPS * steps * hidden


def count_cached_ops(k: Tensor, inputs: int) -> int:
    """The exact count for one sequence with the table k (T, H), when nothing is computed twice.

    k does not depend on the input, so it is a table. A closed unit's h is constant, so its contribution to the other
    units' sums is stored. With A_n the units open at step n, C_n = A_n & A_{n-1}, B_n = A_n - A_{n-1} and E_n the
    units open at any step before n:

        N = sum_n 8 |C_n| |A_{n-1}| + 8 |B_n| |E_n| + |A_{n-1}| + |A_n| (8D + 29 + 7)
    """
    is_open = k > 0
    now = is_open.sum(1)
    before = now.roll(1)
    before[:1] = 0
    stay = (is_open[1:] & is_open[:-1]).sum(1)
    newly = now.clone()
    newly[1:] -= stay
    ever = is_open.cumsum(0).gt(0).sum(1).roll(1)
    ever[:1] = 0
    staying = 8 * (stay * before[1:]).sum()
    fresh = 8 * (newly * ever).sum()
    return int(staying + fresh + before.sum() + now.sum() * (8 * inputs + 29 + 7))
