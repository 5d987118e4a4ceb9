"""Energy on paper: joules from counted operations and memory accesses, and from published constants.

No chip was measured. The counts are those of `native/stream.h`. The work between them (loops, calls, waiting for flash)
is left out, and a constant is right for one chip and one voltage. So the figures say how two networks compare, and of
what size their energy is.
"""

from dataclasses import dataclass, fields

from torch import Tensor

NUMBER = 4  # bytes of a float32
LANES = 8  # float32 numbers in a 256-bit register

ISSCC = "Horowitz, Computing's energy problem, ISSCC 2014: 45 nm, 0.9 V"
CURRENT = "STM32L476 datasheet: 100 uA/MHz in run mode, times 3 V; Arm's Cortex-M4 manual: cycles of an instruction"


@dataclass(frozen=True)
class Work:
    """Counted operations on float32 numbers, and numbers read and written."""

    products: int = 0  # each a multiplication and an addition
    others: int = 0  # additions, multiplications, comparisons and conversions that stand alone
    divisions: int = 0
    constants: int = 0  # reads of numbers that never change: weights, biases and k
    state: int = 0  # reads and writes of numbers that change

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Work)))

    def __sub__(self, other: "Work") -> "Work":
        return self + other * -1

    def __mul__(self, times: int) -> "Work":
        return Work(*(times * getattr(self, field.name) for field in fields(Work)))

    @property
    def instructions(self) -> int:
        return self.products + self.others + self.divisions + self.constants + self.state


# A logistic function or a tanh: a power of 2, a polynomial and a quotient.
FUNCTION = Work(products=9, others=7, divisions=1)
# A unit's new c and h from its four sums: five functions, and the old and the new state mixed by k.
GATED_CELL = FUNCTION * 5 + Work(products=5, state=4)
# k of a unit at a time that is not known beforehand, by the shape of its pulse: a time, and for a bell an e^x.
OPENNESS = {"bell": Work(products=9, others=5, constants=4), "triangle": Work(products=1, others=3, constants=3)}
LSTM_CELL = FUNCTION * 5 + Work(products=3, state=3)


def work_of_layer(k: Tensor, inputs: int, *, reads_k: bool = True) -> Work:
    """One sequence through one layer with the table k (T, H), nothing computed twice: see `count_cached_ops`."""
    is_open = k > 0
    now = is_open.sum(1)
    before = now.roll(1)
    before[:1] = 0
    stay = now * 0
    stay[1:] = (is_open[1:] & is_open[:-1]).sum(1)
    ever = is_open.cumsum(0).gt(0).sum(1).roll(1)
    ever[:1] = 0
    begins = is_open.new_ones(len(k))
    begins[1:] = (is_open[1:] != is_open[:-1]).any(1)
    newly, opened = int((now - stay).sum()), int(now.sum())
    columns = int((stay * before + (now - stay) * ever).sum())  # of four weights each, and one number they multiply
    at_begin = int((now * begins).sum())
    return GATED_CELL * opened + Work(
        products=4 * (columns + inputs * opened),
        others=int(before.sum()),
        constants=4 * (columns + inputs * opened) + 4 * newly + opened * reads_k,
        # h and r give d; the numbers that weights multiply; sums at each step, and sums and r where a span begins.
        state=3 * int(before.sum()) + columns + inputs * opened + 4 * opened + 5 * at_begin,
    )


def work_of_lstm(steps: int, hidden: int, inputs: int) -> Work:
    """One sequence through one layer of a plain LSTM."""
    columns = inputs + hidden
    unit = LSTM_CELL + Work(products=4 * columns, constants=4 * (columns + 1), state=columns)
    return unit * (steps * hidden)


def work_of_dense(inputs: int, outputs: int) -> Work:
    """A row through one linear layer."""
    return Work(products=inputs * outputs, constants=(inputs + 1) * outputs, state=(inputs + 1) * outputs)


@dataclass(frozen=True)
class Constant:
    name: str
    picojoules: float
    source: str


@dataclass(frozen=True)
class Machine:
    """What each kind of work costs. `memory`: the bytes that fit, and a number read from or written to such a memory;
    the last is as large as need be. `instruction`: what each costs on top."""

    name: str
    product: Constant
    other: Constant
    division: Constant
    memory: tuple[tuple[float, Constant], ...]
    instruction: Constant

    @property
    def constants(self) -> list[Constant]:
        return [self.product, self.other, self.division, *(one for _, one in self.memory), self.instruction]

    def joules(self, work: Work, constant_bytes: int, state_bytes: int) -> float:
        """`constant_bytes` and `state_bytes`: how much lies in the memories that the work reads and writes."""
        picojoules = (
            work.products * self.product.picojoules
            + work.others * self.other.picojoules
            + work.divisions * self.division.picojoules
            + work.constants * self._access(constant_bytes).picojoules
            + work.state * self._access(state_bytes).picojoules
            + work.instructions * self.instruction.picojoules
        )
        return 1e-12 * picojoules

    def _access(self, size: int) -> Constant:
        return next(constant for fits, constant in self.memory if size <= fits)


def _cycles(name: str, cycles: int) -> Constant:
    return Constant(name, 300.0 * cycles, CURRENT)


# The supply current is that of the whole chip, so its memories and its instructions are in it.
CORTEX_M4 = Machine(
    "Cortex-M4",
    product=_cycles("multiplication and addition, VFMA, 3 cycles", 3),
    other=_cycles("addition, multiplication, comparison, 1 cycle", 1),
    division=_cycles("division, VDIV, 14 cycles", 14),
    memory=((float("inf"), _cycles("a number from flash or RAM, VLDR, 2 cycles", 2)),),
    instruction=Constant("instruction", 0.0, "in the cycles"),
)
SERVER = Machine(
    "server core",
    product=Constant("float32 multiplication 3.7 and addition 0.9", 4.6, ISSCC),
    other=Constant("float32 addition", 0.9, ISSCC),
    division=Constant(
        "float32 division",
        7.1 * 3.7,
        "7.1 multiplications, as measured on a Cortex-M4F: table 3 of PMC8934428, Frontiers in Neurology 2022",
    ),
    memory=(
        (8 * 1024, Constant("a number from 8 KB of cache", 10 / 2, f"half a 64-bit access; {ISSCC}")),
        (32 * 1024, Constant("a number from 32 KB of cache", 20 / 2, f"half a 64-bit access; {ISSCC}")),
        (1024 * 1024, Constant("a number from 1 MB of cache", 100 / 2, f"half a 64-bit access; {ISSCC}")),
        (float("inf"), Constant("a number from DRAM", 1950 / 2, f"half a 64-bit access of 1.3 to 2.6 nJ; {ISSCC}")),
    ),
    instruction=Constant("a share of an instruction for 8 numbers", 70 / LANES, f"70 pJ an instruction; {ISSCC}"),
)
MACHINES = (CORTEX_M4, SERVER)
