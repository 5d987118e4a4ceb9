"""What the comment at the top of an exported header says about times, inputs and windows."""

from textwrap import wrap

import numpy as np

from glstm.runtime.plan import Plan


def about_times(plan: Plan) -> str:
    """When samples are due: a schedule is right at its own times only."""
    if all(layer.k is None for layer in plan.layers):
        return "\n   Times do not matter: every unit is open at every sample."
    times = plan.times
    first, steps = float(times[0]), len(times)
    step = float(times[-1] - first) / max(steps - 1, 1)
    if np.allclose(times, first + step * np.arange(steps), rtol=0, atol=1e-3 * step):
        every = f"a sample every {step:.6g}, the first" if steps > 1 else "one sample,"
        counted = first == step == 1
        unit = "steps are counted" if counted else "in the unit of the times of training"
        return f"\n   Times: {every} at {first:.10g}; {unit}."
    return "\n" + "\n".join(
        wrap(
            f"Times: the samples are due at these, in the unit of the times of training: "
            f"{', '.join(f'{time:.10g}' for time in times)}.",
            117, initial_indent="   ", subsequent_indent="   ",
        )
    )  # fmt: skip


def about_inputs(plan: Plan) -> str:
    if plan.standard is None:
        return ""
    carries = "\n   NAN is a missing value: the input's last one takes its place, or its mean if there is none yet"
    masks = ";\n   the network also reads which ones are missing"
    missing = {"refuse": "", "carry": f"{carries}.", "mask": f"{carries}{masks}."}[plan.missing]
    fast = "\n   So do not compile it with -ffast-math, which takes every number for one." if missing else ""
    return f"\n   Inputs are raw numbers, in the unit of the training data: they are standardised here.{missing}{fast}"


def about_windows(plan: Plan) -> str:
    if not plan.two_ways:
        return ""
    kept = f"\n   {plan.room} numbers of the state are rows that a layer leaves for the next one." if plan.room else ""
    return f"\n   It reads windows of {plan.steps} samples from both ends, so the caller gives it whole ones.{kept}"
