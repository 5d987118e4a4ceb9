"""Tasks from anybody's arrays."""

from typing import Any

import numpy as np
import pytest
import torch

from glstm.data import ArrayTask, Batch, Sequences, Task
from glstm.errors import UserError

DRAWS = np.random.default_rng(0)
LENGTHS = [int(length) for length in DRAWS.integers(2, 9, 20)]
LISTS = [DRAWS.normal(5, 3, (length, 3)) for length in LENGTHS]
LABELS = np.array(["cat", "dog", "cat", "cow"] * 5)


def padded(fill: float = 0.0) -> np.ndarray:
    x = np.full((20, max(LENGTHS), 3), fill)
    for row, one in zip(x, LISTS, strict=True):
        row[: len(one)] = one
    return x


def all_of(task: ArrayTask) -> Batch:
    return task.cut((torch.arange(task.train_size),), slice(0, task.train_size))


def made(task: ArrayTask, what: str = "inputs") -> Any:
    return getattr(task, f"make_{what}")()


def test_five_lines_are_a_task():
    task = Task.from_arrays(LISTS, LABELS)
    assert task.classes == ("cat", "cow", "dog")
    assert (task.train_size, task.validation_size, task.test_size) == (12, 4, 4)
    assert (task.steps, task.inputs, task.outputs, task.equally_long) == (max(LENGTHS), 3, 3, False)
    assert (
        "12 training, 4 validation and 4 test sequences of 2 to 8 steps, 3 inputs, 3 classes (cat, cow, dog)"
        in task.summary()
    )
    assert repr(task) == f"<{task.summary()}>"


def test_padded_arrays_with_lengths_and_lists_are_the_same_task():
    ours = all_of(ArrayTask(LISTS, LABELS, validation=0, test=0))
    theirs = all_of(ArrayTask(padded(99.0), LABELS, lengths=LENGTHS, validation=0, test=0))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None)
    assert ours.lengths.tolist() == LENGTHS


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, lambda x: np.asarray(x).tolist()])
def test_arrays_tensors_and_plain_lists(convert):
    task = ArrayTask(convert(padded()), convert(np.arange(20) % 4))
    assert task.classes == ("0", "1", "2", "3")
    assert task.equally_long


def test_parts_hold_each_class_in_its_share_and_no_sequence_twice():
    labels = np.array(["a"] * 60 + ["b"] * 30 + ["c"] * 10)
    x = np.arange(100.0)[:, None, None] * np.ones((1, 4, 1))
    task = ArrayTask(x, labels, validation=0.2, test=0.3, seed=3)
    seen = sorted(one[0, 0] for part in task.sequences.values() for one in part.x)
    assert seen == list(range(100))
    counts = {part: [list(own.y).count(name) for name in "abc"] for part, own in task.sequences.items()}
    assert counts == {"train": [30, 15, 5], "validation": [12, 6, 2], "test": [18, 9, 3]}
    again = ArrayTask(x, labels, validation=0.2, test=0.3, seed=3)
    other = ArrayTask(x, labels, validation=0.2, test=0.3, seed=4)
    assert torch.equal(again.test_samples(slice(0, 30)).x, task.test_samples(slice(0, 30)).x)
    assert not torch.equal(other.test_samples(slice(0, 30)).x, task.test_samples(slice(0, 30)).x)


def test_parts_may_be_given():
    task = ArrayTask(LISTS, LABELS, validation=(LISTS[:4], LABELS[:4]), test={"x": LISTS[4:9], "y": LABELS[4:9]})
    assert (task.train_size, task.validation_size, task.test_size) == (20, 4, 5)
    assert task.test_samples(slice(0, 5)).y.tolist() == [("cat", "cow", "dog").index(one) for one in LABELS[4:9]]


def test_a_class_only_the_test_part_has_is_refused():
    with pytest.raises(UserError, match="the test part has the class 'emu', which no training sequence has"):
        ArrayTask(LISTS, LABELS, test=(LISTS[:1], np.array(["emu"])))


def test_inputs_are_standardised_by_the_training_part_alone():
    x, y = DRAWS.normal(1e3, 20, (50, 7, 2)), np.arange(50) % 2
    task = ArrayTask(x, y, test=(x[:5] + 1e6, y[:5]))
    inputs = made(task)
    standard = inputs(all_of(task).x).reshape(-1, 2)
    assert standard.mean(0).abs().max() < 1e-3
    assert (standard.std(0) - 1).abs().max() < 1e-2
    assert torch.equal(task.test_samples(slice(0, 5)).x[0, 0], torch.tensor(x[0, 0] + 1e6, dtype=torch.float32))


def test_a_constant_channel_and_values_as_targets():
    x = DRAWS.normal(size=(30, 6, 2))
    x[..., 1] = 7.0
    y = DRAWS.normal(300, 10, (30, 2))
    y[3, 1] = np.nan
    task = ArrayTask(x, y, validation=0, test=0)
    assert made(task).scale[1] == 1
    assert (task.metric, task.outputs, task.classes) == ("mean absolute error", 2, None)
    own = all_of(task)
    exact = own.y.nan_to_num(12345.0)  # the missing value is not counted
    assert task.errors(exact, own.y).abs().max() == 0
    assert torch.allclose(task.errors(exact + 3, own.y), torch.tensor(3.0))
    spread = torch.tensor(np.nanstd(y, 0), dtype=torch.float32)
    assert torch.allclose(task.losses(exact + spread, own.y), torch.tensor(1.0))
    assert torch.allclose(made(task, "outputs")(torch.zeros(2)), torch.tensor(np.nanmean(y, 0), dtype=torch.float32))


def test_targets_of_each_step_with_missing_ones():
    y = [np.where(np.arange(length) % 2, -1, np.arange(length) % 3) for length in LENGTHS]
    task = ArrayTask(LISTS, y, validation=0, test=0)
    assert task.per_step
    assert task.classes == ("0", "1", "2")
    own = all_of(task)
    assert own.y.shape == (task.steps, 20)
    right = torch.nn.functional.one_hot(own.y.clamp(min=0), 3).float()
    assert task.errors(right, own.y).sum() == 0
    wrong_at_first = right.clone()
    wrong_at_first[0] = right[0].roll(1, -1)
    known = (own.y >= 0).sum(0)
    assert torch.allclose(task.errors(wrong_at_first, own.y), 1 / known)


def test_values_of_each_step():
    y = [one[:, 0].copy() for one in LISTS]
    y[0][1] = np.nan
    task = ArrayTask(LISTS, y, validation=0, test=0)
    own = all_of(task)
    assert own.y.shape == (task.steps, 20, 1)
    assert task.errors(own.y.nan_to_num(), own.y).abs().max() < 1e-6


def test_shared_times_and_times_of_their_own():
    shared = ArrayTask(padded(), LABELS, times=np.arange(0, 80, 10)[: max(LENGTHS)])
    assert (shared.own_times, shared.first_time, shared.span) == (False, 0.0, 70.0)
    assert shared.clock == (0.0, 10.0)
    times = [np.cumsum(DRAWS.uniform(0.1, 1, length)) for length in LENGTHS]
    own = ArrayTask(LISTS, LABELS, times=times, validation=0, test=0)
    assert own.own_times
    batch = all_of(own)
    assert batch.times.shape == (own.steps, 20)
    assert (batch.times.diff(dim=0) > 0).all()
    assert batch.times[: LENGTHS[1], 1].tolist() == times[1].tolist()


def test_dates_count_from_each_sequences_start():
    day = 86400.0
    times = [1.7e9 + 30 * day * number + np.arange(length) * day for number, length in enumerate(LENGTHS)]
    task = ArrayTask(LISTS, LABELS, times=times)
    assert task.from_start
    assert task.first_time == 0
    assert task.times.tolist() == [day * step for step in range(task.steps)]
    kept = ArrayTask(LISTS, LABELS, times=times, from_start=False)
    assert kept.first_time >= 1.7e9


def test_datetimes_are_seconds():
    times = np.datetime64("2024-01-01") + np.arange(max(LENGTHS)) * np.timedelta64(1, "h")
    task = ArrayTask(padded(), LABELS, times=times, from_start=False)
    assert task.times.diff().unique().tolist() == [3600.0]


@pytest.mark.parametrize(("missing", "channels"), [("carry", 3), ("mask", 6)])
def test_missing_inputs_by_choice(missing, channels):
    x = padded()
    x[2, 1, 0] = np.nan
    task = ArrayTask(x, LABELS, missing=missing, validation=0, test=0)
    standard = made(task)(all_of(task).x)
    assert standard.shape[-1] == channels
    assert not standard.isnan().any()
    assert standard[1, 2, 0] == standard[0, 2, 0]
    if missing == "mask":
        assert standard[1, 2, 3] == 0
        assert standard[..., 3:].sum() == standard[..., 3:].numel() - 1


def test_missing_inputs_are_refused_by_default():
    x = padded()
    x[2, 1, 0] = np.nan
    with pytest.raises(UserError, match=r'step 2, channel 1: choose missing="carry"'):
        ArrayTask(x, LABELS)


def test_windows_are_split_in_the_order_of_time():
    x = np.arange(1000.0)[None, :, None]
    task = ArrayTask(x, x[..., 0], window=50, times=1.7e9 + np.arange(1000) * 60.0)
    assert (task.train_size, task.validation_size, task.test_size) == (12, 4, 4)
    latest = {part: max(float(one.max()) for one in own.x) for part, own in task.sequences.items()}
    assert latest["train"] < latest["validation"] < latest["test"] == 999
    assert task.first_time == 0


def test_windows_of_a_sequence_with_one_target_stay_together():
    x = np.arange(30.0)[:, None, None] * np.ones((1, 40, 1))
    task = ArrayTask(x, np.arange(30) % 2, window=10)
    own = {part: {float(one[0, 0]) for one in sequences.x} for part, sequences in task.sequences.items()}
    assert [len(numbers) for numbers in own.values()] == [18, 6, 6]
    assert sorted(number for numbers in own.values() for number in numbers) == list(range(30))
    assert (task.train_size, task.steps) == (72, 10)


def test_targets_are_scaled_by_their_own_digits():
    y = 1e9 + DRAWS.normal(0, 1, 50)
    task = ArrayTask(DRAWS.normal(size=(50, 3, 1)), y, validation=0, test=0)
    assert task.target_scale.item() == pytest.approx(y.std(), rel=1e-6)
    task = ArrayTask(y.reshape(5, 10, 1) - 1e9, y.reshape(5, 10), validation=0, test=0)
    assert task.target_scale.item() == pytest.approx(y.std(), rel=1e-6)


def test_sequences_are_counted_from_1_as_they_were_given():
    y, x = np.arange(20.0), padded()
    y[11] = np.nan
    with pytest.raises(UserError, match=r"^sequence 12 has no target: leave it out"):
        ArrayTask(x, y)
    with pytest.raises(UserError, match=r"^sequence 2 of the test part has no target"):
        ArrayTask(x, np.arange(20.0), test=(x[10:12], y[10:12]))
    named = Sequences(LISTS, y[:, None], names=tuple(f"p{number}" for number in range(20)))
    with pytest.raises(UserError, match=r"^sequence 12 \('p11'\) has no target"):
        ArrayTask(named)
    with pytest.raises(UserError, match=r"^sequence 3 has no label"):
        ArrayTask(x, [*LABELS[:2], None, *LABELS[3:]])
    with pytest.raises(UserError, match=r"^sequence 1 has 8 steps, and 3 times"):
        ArrayTask(x, LABELS, times=np.arange(3))
    x[4, 2, 0] = np.nan
    with pytest.raises(UserError, match=r"^sequence 5 has a NaN"):
        ArrayTask(x, LABELS)
    with pytest.raises(UserError, match=r"^sequence 5 of the test part has a NaN"):
        ArrayTask(padded(), LABELS, test=(x, LABELS), window=2)
    with pytest.raises(UserError, match=r"^the test part: there are 20 sequences, and 2 targets"):
        ArrayTask(padded(), LABELS, test=(x, LABELS[:2]))


def test_a_part_of_windows_without_any_target_is_refused():
    y = np.where(np.arange(100) < 60, 1.0, np.nan)[None]
    with pytest.raises(UserError, match="no window of the validation part has a target"):
        ArrayTask(np.zeros((1, 100, 1)), y, window=10)


def test_without_a_validation_part_the_advice_is_one():
    _, what = ArrayTask(LISTS, LABELS, validation=0).held_out(5, 5)
    assert what.endswith("may have seen: a validation part would hold some out")


def test_batches_depend_on_seed_and_epoch_alone():
    task, same = (ArrayTask(LISTS, LABELS) for _ in range(2))
    for one, other in zip(task.batches("train", 5, 1, 2), same.batches("train", 5, 1, 2), strict=True):
        assert torch.equal(one[0], other[0])
    orders = {tuple(task.stage(seed, epoch)[0].tolist()) for seed in (0, 1) for epoch in (1, 2)}
    assert len(orders) == 4


def test_the_order_does_not_depend_on_the_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=padded(), y=np.arange(20) % 2)
    tasks = [Task.from_file(tmp_path / "a.npz", name=name) for name in (None, "power", "arrays")]
    assert [task.name for task in tasks] == ["a", "power", "arrays"]
    assert [task.source.get("name") for task in tasks] == [None, "power", "arrays"]
    orders = {tuple(task.stage(3, 1)[0].tolist()) for task in [*tasks, ArrayTask(padded(), np.arange(20) % 2)]}
    assert len(orders) == 1


def test_other_data_has_another_fingerprint():
    prints = {str(ArrayTask(LISTS[:n], LABELS[:n]).artifacts()) for n in (18, 19)}
    assert len(prints) == 2
    assert ArrayTask(LISTS, LABELS).artifacts() == ArrayTask(LISTS, LABELS).artifacts()


@pytest.mark.parametrize(
    ("x", "y", "options", "sentence"),
    [
        (LISTS, LABELS[:5], {}, "there are 20 sequences, and 5 targets"),
        (np.zeros((4, 3)), None, {}, "has no targets to learn: give y"),
        (np.zeros(5), np.zeros(5), {}, r"x must be \(N, T, D\), \(N, T\), or a list"),
        (np.zeros((0, 3)), np.zeros(0), {}, "x holds no sequence"),
        (np.array([["a", "b"]]), [1], {}, "x must hold numbers"),
        (LISTS, ["same"] * 20, {}, "has only one class"),
        (LISTS, [np.where(one[:, 0] > 0, 1, -1) for one in LISTS], {}, "one class, '1'; -1 at a step means"),
        (padded(), LABELS, {"lengths": [99] * 20}, "lengths of x must be from 1 to 8"),
        (padded(), LABELS, {"lengths": [1.5] * 20}, "lengths must be one whole number"),
        (padded(), LABELS, {"times": np.zeros(max(LENGTHS))}, "is not after the one before it"),
        (padded(), LABELS, {"times": np.zeros((3, 3, 3))}, r"times must be \(T,\) for all"),
        (padded(), LABELS, {"validation": 0.6, "test": 0.6}, "leave nothing to train on"),
        (padded(), LABELS, {"test": 1.5}, "test must be a share of the sequences from 0 to 1"),
        (padded(), LABELS, {"test": "file.ts"}, "test must be a share"),
        (padded(), LABELS, {"missing": "drop"}, "missing must be one of refuse, carry, mask"),
        (padded(), LABELS, {"classes": ["cat", "dog"]}, "the label 'cow' is not among the classes"),
        (padded()[:1], [1], {}, "one sequence cannot be split .* if it is a table of several, name .* by --id"),
        (padded(np.inf), LABELS, {}, "infinite"),
        (padded()[:1], padded()[:1, :, 0], {"window": 100}, "no window of 100 steps is left"),
        (padded()[:2], LABELS[:2], {"window": 2}, "of 2 sequences none is left for the"),
        (padded(), LABELS, {"window": 0}, "window must be a whole number of steps, at least 1, not 0"),
        (Sequences([np.zeros((2, 1))]), [1], {}, "Sequences hold their own targets, times and classes: leave out y"),
        (Sequences(LISTS, LABELS, classes=("cat", "cow", "dog")), None, {"classes": ["dog"]}, "leave out classes"),
        (Sequences(LISTS, LABELS, classes=("cat", "cow", "dog")), None, {"per_step": False}, "leave out per_step"),
        (Sequences(LISTS, LABELS, classes=("cat", "cow", "dog")), None, {"values": True}, "leave out values"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(x, y, options, sentence):
    with pytest.raises(UserError, match=sentence):
        ArrayTask(x, y, **options)


def test_a_channel_that_float32_cannot_hold_is_named():
    x = 1.7e9 + DRAWS.normal(size=(20, 5, 1))
    with pytest.warns(UserWarning, match="channel 1 varies by .* around 1.7e"):
        ArrayTask(x, LABELS)


def test_names_for_classes_that_are_numbers():
    task = ArrayTask(padded(), np.arange(20) % 2, classes=["rest", "walk"])
    assert task.classes == ("rest", "walk")
    assert task.test_samples(slice(0, 4)).y.max() <= 1


def test_more_values_than_steps_are_values_of_the_sequence():
    x = DRAWS.normal(size=(20, 6, 1))
    assert ArrayTask(x, DRAWS.normal(size=(20, 9))).outputs == 9
    assert not ArrayTask(x, DRAWS.normal(size=(20, 9))).per_step
    assert ArrayTask(x, DRAWS.normal(size=(20, 6))).per_step
    assert ArrayTask(x, DRAWS.normal(size=(20, 6)), per_step=False).outputs == 6


def test_whole_numbers_may_be_values():
    task = Task.from_arrays(padded(), np.arange(20) * 10, values=True, validation=0, test=0)
    assert (task.classes, task.outputs, task.metric) == (None, 1, "mean absolute error")
    assert all_of(task).y[:, 0].tolist() == [10.0 * number for number in range(20)]
    counts = [np.arange(length) - 1 for length in LENGTHS]
    task = ArrayTask(LISTS, counts, values=True, validation=0, test=(LISTS[:2], counts[:2]))
    assert all_of(task).y[0, :, 0].tolist() == [-1.0] * 20  # -1 is a value, too
    with pytest.raises(UserError, match="values says that y holds numbers"):
        ArrayTask(padded(), np.arange(20), values=True, classes=["a", "b"])


def numbers_as_classes(y):
    return ArrayTask(np.zeros((len(y), 3, 1)), y, validation=0, test=0)


def test_many_whole_numbers_are_doubted_as_classes(tmp_path):
    ages = DRAWS.permutation(np.arange(120) % 60)
    with pytest.warns(UserWarning, match="60 different whole numbers were taken as classes: .*, say values=True"):
        numbers_as_classes(ages[:119])
    with pytest.warns(UserWarning, match="60 different whole numbers"):  # numbers that are left out
        numbers_as_classes(np.tile(ages * 2, 5))
    np.savez(tmp_path / "a.npz", x=np.zeros((119, 3, 1)), y=ages[:119])
    with pytest.warns(UserWarning, match="if they are values to predict, add --values"):
        Task.from_file(tmp_path / "a.npz", validation=0, test=0)
    with (
        pytest.warns(UserWarning, match="20 different whole numbers"),
        pytest.raises(UserError, match=r"each of 20 classes keeps one .* if the classes are values to predict, add"),
    ):
        ArrayTask(padded(), np.arange(20))


@pytest.mark.parametrize("patients", [60, 30])
def test_ages_of_a_few_patients_are_doubted_where_nobody_named_classes(tmp_path, patients):
    x, ages = np.zeros((patients, 3, 1)), np.random.default_rng(0).integers(20, 90, patients)
    names = np.unique(ages).astype(str)
    np.savez(tmp_path / "plain.npz", x=x, y=ages)
    np.savez(tmp_path / "named.npz", x=x, y=ages, classes=names)
    rows = [f"{number},0,{age}" for number, age in enumerate(ages) for _ in range(3)]
    (tmp_path / "plain.csv").write_text("\n".join(["id,a,age", *rows]))
    none = {"validation": 0, "test": 0}
    for make in (
        lambda: ArrayTask(x, ages, **none),
        lambda: Task.from_file(tmp_path / "plain.npz", **none),
        lambda: Task.from_file(tmp_path / "plain.csv", id="id", target="age", **none),
    ):
        with pytest.warns(UserWarning, match=f"{len(names)} different whole numbers were taken as classes"):
            make()
    assert ArrayTask(x, ages, classes=names, **none).has_classes  # a warning would be an error
    assert Task.from_file(tmp_path / "named.npz", **none).has_classes
    assert Task.from_file(tmp_path / "plain.npz", doubts=False, **none).has_classes


@pytest.mark.parametrize(
    "y", [np.arange(300) % 60, np.arange(9), np.arange(20) * 7 % 70, np.array([f"c{n}" for n in range(60)])]
)
def test_classes_are_not_doubted_without_a_reason(y):
    assert numbers_as_classes(y).has_classes  # a warning would be an error


def test_minus_one_is_a_class_of_sequences():
    assert ArrayTask(padded(), np.where(np.arange(20) % 2, 1, -1)).classes == ("-1", "1")


def test_sequences_shorter_than_a_window_and_windows_without_targets():
    y = [DRAWS.normal(size=length) for length in (50, 5, 40)]
    y[2][10:20] = np.nan
    task = ArrayTask([one[:, None] for one in map(np.nan_to_num, y)], y, window=10, validation=0, test=0)
    assert task.train_size == 5 + 1 + 3
    assert task.sequences["train"].names[5] == "2, steps 1 to 5"


def test_times_that_differ_in_their_last_digit_are_the_same():
    x = DRAWS.normal(size=(1, 400, 1))
    task = ArrayTask(x, x[..., 0], window=40, times=0.1 * np.arange(400) + 3.3)
    assert not task.own_times


def test_parts_must_have_the_same_channels_and_unit_of_time():
    own = [Sequences([one[:, :2] for one in LISTS], LABELS, classes=("cat", "cow", "dog"), channels=names)
           for names in (("a", "b"), ("b", "a"))]  # fmt: skip
    with pytest.raises(UserError, match="the test part has the channels b, a, and the training part a, b"):
        ArrayTask(own[0], test=own[1])
    days = np.datetime64("2024-01-01") + np.arange(max(LENGTHS)) * np.timedelta64(1, "D")
    plain = {"x": padded()[:4], "y": LABELS[:4], "times": np.arange(max(LENGTHS))}
    with pytest.raises(UserError, match="the times of the test part are plain numbers, and those of the training"):
        ArrayTask(padded(), LABELS, times=days, test=plain)


@pytest.mark.parametrize("y", [np.arange(20) % 3, np.linspace(0, 1, 20), np.ones((20, 9, 2))])
def test_a_process_without_a_sequence_of_a_batch_adds_nothing(y):
    task = ArrayTask(np.ones((20, 9, 1)), y)
    wanted = task.cut(task.stage(0, 1), slice(0, 0)).y
    shape = (9, 0, 2) if task.per_step else (0, task.outputs)
    for of in (task.losses, task.errors):
        assert of(torch.zeros(shape), wanted).shape == (0,)
