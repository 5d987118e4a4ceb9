"""The figures of the paper's trial in docs/choosing.md, computed again from the JSON."""

from statistics import mean

from test_headline import closed as closed_rows
from test_quoted_figures import RESULTS, arms_of, errors, learnt, operations, percent, section

TEXT = section("docs/choosing.md", "## The values", "## Signs that gates are wrong")


def closed(arm: dict, name: str) -> float:
    """The mean over seeds of what was measured with units at k <= 0.01 closed."""
    return mean(row[name] for row in closed_rows(arm))


def test_starts_of_the_moments():
    starts = [
        arms_of("table1-adding1000")["glstm"],
        *RESULTS["fig3-trainability"]["arms"],
        *RESULTS["appB-inits"]["arms"],
    ]
    means = [mean(errors(arm)) for arm in starts]
    within = [max(errors(arm)) / min(errors(arm)) for arm in starts]
    assert len(starts) == 5
    assert 3 < max(means) / min(means) < 4
    seeds = f"{min(within):.0f} to {max(within):.0f}"
    assert f"within a factor of 4 of each other, and seeds of one start within a factor of {seeds}" in TEXT


def test_widths_and_charges():
    charged = [arms_of("budget")[f"lambda-{value}"] for value in ("0", "0.1", "1", "10")]
    narrow, wide = errors(charged[0]), errors(arms_of("table1-smnist")["glstm"])
    assert f"{percent(mean(narrow))} error from sigma 50, {percent(mean(wide))} from 250" in TEXT
    moved = [arms_of("frontier")[key] for key in ("moved-0.09", "moved-0.25")]
    moved.append(arms_of("table1-smnist")["glstm-best"])
    ends = [percent(mean(errors(arm))) for arm in moved]
    assert f"{ends[0]} with narrow gates and 110 units, {ends[1]} with 220, and {ends[2]} with wide gates" in TEXT
    shares = [f"{100 * closed(arm, 'open_share'):.1f}" for arm in charged[1:]]
    ends = [percent(closed(arm, "error")).removesuffix(" %") for arm in charged[1:]]
    assert f"{shares[0]}, {shares[1]} and {shares[2]} % open, errors {ends[0]}, {ends[1]} and {ends[2]} %" in TEXT


def test_thresholds():
    after, before = (arms_of("truncated")[key] for key in ("after-training", "from-the-start"))
    words = (
        f"({percent(mean(errors(before)))}, and {percent(mean(errors(after)))} where units were closed after training)"
    )
    assert words in TEXT
    (wide,) = (arm for arm in RESULTS["threshold"]["arms"] if arm["key"] == "no-budget")
    whole = mean(run["curve"]["test_error"][-1] for run in wide["runs"])
    assert f"{percent(whole).removesuffix(' %')} became {percent(closed(wide, 'error'))}" in TEXT


def test_sizes():
    many, few, plain = (
        arms_of("frontier")["moved-0.25"],
        *(arms_of("appD-size")[f"{cell}-25"] for cell in ("glstm", "lstm")),
    )
    count = f"{closed(many, 'cached_ops') / 1e6:.3g} M"
    words = f"220 units, {100 * closed(many, 'open_share'):.1f} % open, take {count} operations and end at"
    assert f"{words} {percent(mean(errors(many)))}, with images that move" in TEXT
    assert f"25 units with wide gates ended at {percent(mean(errors(few)))}" in TEXT
    assert f"in nearly twice the epochs, at {percent(mean(errors(plain)))}" in TEXT
    assert operations(plain) > closed(many, "cached_ops")


def test_chrono_biases():
    adding, images = arms_of("adding-lengths"), arms_of("appD-chrono")
    with_chrono, without = (learnt(adding[f"glstm-1000-{start}"]) for start in ("chrono", "orthogonal"))
    assert f"by epoch {with_chrono:g} instead of {without:g}, on sMNIST" in TEXT
    chrono, constant = learnt(images["glstm-chrono-250"]), learnt(images["glstm-constant"])
    assert f"by epoch {chrono:g} (T_max 250) instead of {constant:g}" in TEXT


def test_long_memory_alone():
    text = section("docs/choosing.md", "- **Long memory alone.**", "- **Forecasting the next step.**")
    arms = arms_of("adding-lengths")
    found = [
        [learnt(arms[f"{network}-{steps}-{start}"]) for network, start in (("lstm", "chrono"), ("glstm", "xavier"))]
        for steps in (1000, 2000)
    ]
    (short, gated_short), (long, gated_long) = found
    assert (
        f"epoch {short:g} instead of {gated_short:g} at 1000 steps, by epoch {long:g} instead of {gated_long:g}" in text
    )
    for steps, (_, xavier) in zip((1000, 2000), found, strict=True):
        assert xavier < learnt(arms[f"glstm-{steps}-orthogonal"])
