"""What is said about a table whose targets may be meant otherwise, and what the first line shows."""

import pytest

from glstm.data import Task


def table(path, wrong, ids=30):
    """An outcome for each id; `wrong` has another one by (id, step)."""
    rows = [
        f"p{number},{step},{number * step},{wrong.get((number, step), ('well', 'ill')[number % 2])}"
        for number in range(ids)
        for step in range(4)
    ]
    path.write_text("\n".join(["patient,hour,pulse,outcome", *rows]))
    return path


def test_one_wrong_row_is_named(tmp_path):
    path = table(tmp_path / "a.csv", {(20, 2): "ill"})
    with pytest.warns(UserWarning, match=r"but not in 1 of 30 ids, .* look at row 83, of 'p20'"):
        task = Task.from_file(path, id="patient", time="hour", target="outcome")
    assert task.per_step


def test_targets_that_vary_in_several_ids_are_those_of_steps(tmp_path):
    path = table(tmp_path / "a.csv", {(number, 2): "ill" for number in (2, 8, 20)})
    assert Task.from_file(path, id="patient", time="hour", target="outcome").per_step  # a warning would be an error


def test_the_summary_names_inputs_and_classes(tmp_path):
    path = table(tmp_path / "a.csv", {})
    shown = Task.from_file(path, id="patient", target="outcome").summary()
    assert shown.endswith("2 inputs (hour, pulse), 2 classes (ill, well) for each")
    shown = Task.from_file(path, id="patient", target="pulse", inputs=("hour",), values=True).summary()
    assert shown.endswith("1 input (hour), 1 value (pulse) at each step")
    many = ",".join(f"a{number}" for number in range(20))
    rows = [f"{number},{','.join('1' * 20)},{number % 2}" for number in range(20)]
    (tmp_path / "b.csv").write_text("\n".join([f"id,{many},y", *rows]))
    shown = Task.from_file(tmp_path / "b.csv", id="id", target="y").summary()
    assert "20 inputs (a0, a1, a2, a3, a4, a5, a6, a7, ...), 2 classes (0, 1) for each" in shown
