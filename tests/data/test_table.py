import datetime
import io
import sys

import numpy as np
import polars as pl
import pytest

from glstm.data.table import read_table
from glstm.errors import DataError, UserError
from glstm.extras import MissingPackage

NAN = np.nan
CSV = """patient,when,pulse,pressure,state,stage,dose
b,2,80,,tense,1,1.5
a,5,62,121.5,calm,2,0.5
a,1,61,NA,calm,1,0.5
b,1,NaN,130,tense,1,1.5
"""


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes, ending: str = "csv", **options):
        path = tmp_path / f"own.{ending}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_table(path, **options)

    return read


def write(frame: pl.DataFrame, ending: str) -> bytes:
    file = io.BytesIO()
    (frame.write_parquet if ending == "parquet" else frame.write_ipc)(file)
    return file.getvalue()


def same(arrays, expected):
    assert len(arrays) == len(expected)
    for one, other in zip(arrays, expected):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, np.array(other, dtype=np.float64))


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "feather"])
def test_rows_are_grouped_by_id_and_sorted_by_time(read, ending):
    if ending in ("csv", "tsv"):
        content = CSV.replace(",", "," if ending == "csv" else "\t")
    else:
        content = write(pl.read_csv(io.StringIO(CSV), null_values=["NA"]), ending)
    found = read(content, ending, id="patient", time="when", target="state", inputs=["pulse", "pressure"])
    assert found.names == ("b", "a")
    same(found.times, [[1, 2], [1, 5]])
    same(found.x, [[[NAN, 130], [80, NAN]], [[61, NAN], [62, 121.5]]])
    assert found.channels == ("pulse", "pressure")
    assert found.y.tolist() == ["tense", "calm"]
    assert (found.classes, found.targets, found.time_unit) == (("calm", "tense"), None, None)


def test_a_target_that_varies_is_one_of_each_step(read):
    found = read(CSV, id="patient", time="when", target="stage", inputs="pulse")
    assert [y.tolist() for y in found.y] == [["1", "1"], ["1", "2"]]
    assert found.classes == ("1", "2")


def test_a_constant_float_is_a_value_of_the_sequence(read):
    found = read(CSV, id="patient", time="when", target="dose", inputs="pulse")
    assert found.y.tolist() == [[1.5], [0.5]]
    assert (found.classes, found.targets) == (None, ("dose",))


def test_several_targets_are_values(read):
    found = read(CSV, id="patient", target=["stage", "dose"], inputs="pulse")
    same(found.y, [[[1, 1.5], [1, 1.5]], [[2, 0.5], [1, 0.5]]])
    assert found.targets == ("stage", "dose")


def test_without_id_the_table_is_one_sequence_with_a_target_of_each_step(read):
    found = read("a,b,y\n1,2,u\n3,4,u\n", target="y")
    same(found.x, [[[1, 2], [3, 4]]])
    assert (found.channels, found.names, found.times) == (("a", "b"), None, None)
    assert [y.tolist() for y in found.y] == [["u", "u"]]


def test_a_forgotten_id_is_asked_for(read):
    with pytest.raises(DataError, match=r"rows 1 and 2 are of the same sequence .* without --id .* all rows are one"):
        read("who,t,a,y\n1,0,1,0\n2,0,3,1\n", time="t", target="y")
    with pytest.raises(DataError) as refusal:
        read("who,t,a,y\n1,0,1,0\n1,0,3,0\n", id="who", time="t", target="y")
    assert "--id" not in str(refusal.value)


def test_a_target_given_in_some_rows_is_missing_in_the_others(read):
    found = read("i,a,y\n1,1,\n1,2,u\n2,3,\n2,4,v\n", id="i", target="y")
    assert [y.tolist() for y in found.y] == [["", "u"], ["", "v"]]
    found = read("i,a,y\n1,1,\n1,2,0.5\n", id="i", target="y")
    same(found.y, [[[NAN], [0.5]]])


def test_classes_say_the_order_or_that_whole_numbers_are_values(read):
    text = "i,a,y\n1,1,10\n2,2,9\n"
    assert read(text, id="i", target="y").classes == ("9", "10")
    assert read(text, id="i", target="y", classes=["10", "9", "8"]).classes == ("10", "9", "8")
    values = read(text, id="i", target="y", classes=False)
    assert (values.y.tolist(), values.classes) == ([[10], [9]], None)
    assert read("i,a,y\n1,1,0.5\n2,2,1.5\n", id="i", target="y", classes=True).classes == ("0.5", "1.5")


def test_ids_and_labels_stay_as_they_are_written(read):
    found = read("i,a,y\n007,1,01\n7,2,02\n", id="i", target="y")
    assert found.names == ("007", "7")
    assert found.classes == ("01", "02")


DATES = {
    "days": ("1970-01-02", "1970-01-03", [86400, 172800]),
    "clock": ("1970-01-01 00:00:01", "1970-01-01T00:01:00.25", [1, 60.25]),
    "zones": ("1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01Z", [0, 1]),
}


@pytest.mark.parametrize(("first", "second", "seconds"), DATES.values(), ids=DATES)
def test_dates_are_seconds_since_1970(read, first, second, seconds):
    found = read(f"t,a\n{second},2\n{first},1\n", time="t")
    same(found.times, [seconds])
    same(found.x, [[[1], [2]]])
    assert found.time_unit == "seconds"


def test_whole_numbers_that_look_like_dates_stay_numbers(read):
    found = read("date,co2\n19580329,316.1\n19580405,317.3\n", time="date")
    same(found.times, [[19580329, 19580405]])
    assert found.time_unit is None


def test_typed_columns_of_parquet(read):
    day = datetime.datetime(1970, 1, 2)
    frame = pl.DataFrame(
        {
            "t": [day, day + datetime.timedelta(microseconds=1)],
            "zone": pl.Series([day, day + datetime.timedelta(1)]).dt.replace_time_zone("Europe/Berlin"),
            "day": [day.date(), day.date() + datetime.timedelta(1)],
            "span": [datetime.timedelta(seconds=1), datetime.timedelta(seconds=2.5)],
            "a": [True, False],
            "y": pl.Series(["lo", None], dtype=pl.Enum(["lo", "hi"])),
            "flag": [True, None],
        }
    )
    content = write(frame, "parquet")
    for name, seconds in {"t": [86400, 86400.000001], "zone": [82800, 169200], "day": [86400, 172800],
                          "span": [1, 2.5]}.items():  # fmt: skip
        found = read(content, "parquet", time=name, inputs="a", target="y")
        same(found.times, [seconds])
        assert found.time_unit == "seconds"
        same(found.x, [[[1], [0]]])
        assert found.classes == ("lo", "hi")
        assert found.y[0].tolist() == ["lo", ""]
    assert read(content, "parquet", inputs="a", target="flag").y[0].tolist() == ["true", ""]


def test_blank_lines_spaces_quotes_and_windows(read):
    found = read(b'\xef\xbb\xbf" a ",b\r\n 1 ,"2"\r\n\r\n3, NA \r\n,4\r\n\r\n')
    same(found.x, [[[1, 2], [3, NAN], [NAN, 4]]])
    assert found.channels == ("a", "b")
    same(read("a\n1\n\nNA\n2\n").x, [[[1], [NAN], [2]]])


WRONG = {
    "no rows": ("a,b\n", {}, "it has no rows"),
    "no name": ("a,,c\n1,2,3\n", {}, "column 2 has no name in the first line"),
    "no names": ("1,2\n3,4\n", {}, "its first line holds numbers; it should name the columns"),
    "long label": (f"a,y\n1,{'u' * 201}\n", {"target": "y"}, "the target 'y' has a label of 201 characters; 200 are"),
    "name twice": ("a,a\n1,2\n", {}, "two columns have the name 'a'"),
    "blank first": ("\na,b\n1,2\n", {}, "its first line is blank"),
    "long line": ("a,b\n1,2\n3,4,5\n", {}, "line 3 has 3 fields where 2 belong"),
    "short line": ("a,b\n1,2\n\n3\n", {}, "line 4 has 1 field where 2 belong"),
    "encoding": (b"a,b\n1,2\n\xe9,3\n", {}, "line 3 is not text in UTF-8"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), {}, "line 1 is not text in UTF-8"),
    "open quote": ('a,b\n"1,2\n3,4\n', {}, "line 3 cannot be read: unexpected end of data"),
    "no such column": ("pulse,b\n1,2\n", {"target": "puls"}, "it has no column 'puls'; did you mean 'pulse'?"),
    "nothing near": ("pulse,b\n1,2\n", {"id": "patient"}, "it has no column 'patient'; it has 'pulse', 'b'"),
    "no inputs": ("a,b\n1,2\n", {"id": "a", "target": "b"}, "no column is left for the inputs"),
    "no inputs asked": ("a,b\n1,2\n", {"inputs": []}, "no column is left for the inputs"),
    "two uses": ("a,b\n1,2\n", {"target": "a", "inputs": ["a", "b"]}, "the column 'a' cannot be two of input, target"),
    "text": ("a,b\n1,2\n3,x\n", {}, "the column 'b' is not numeric: row 2 holds 'x'; an input must be numbers"),
    "infinite": ("a\n1\n-inf\n", {}, "the column 'a' holds an infinite number in row 2"),
    "too large": ("a\n1\n1e999\n", {}, "the column 'a' holds an infinite number in row 2"),
    "no id": ("i,a\n1,2\n,3\n", {"id": "i"}, "the column 'i' has no id in row 2"),
    "no time": ("t,a\n1,2\nNA,3\n", {"time": "t"}, "the column 't' has no time in row 2"),
    "no date": ("t,a\n2007-01-01,2\n,3\n", {"time": "t"}, "the column 't' has no time in row 2"),
    "later date": ("t,a\n2007-01-01,2\n2007-13-01,2\n", {"time": "t"}, "holds '2007-13-01' in row 2: times are"),
    "a clock among numbers": ("t,a\n1,2\n2,2\n12:30,1\n4,1\n", {"time": "t"}, "column 't' holds '12:30' in row 3: "),
    "other date": ("t,a\n1/2/2007,2\n", {"time": "t"}, "the column 't' holds '1/2/2007' in row 1: times are"),
    "same time": (
        "i,t,a\nx,1,1\ny,1,2\n\nx,1,3\n", {"id": "i", "time": "t"},
        "rows 1 and 4 are of the same sequence and have the same 't'",
    ),
    "unknown class": (
        "a,y\n1,u\n2,v\n", {"target": "y", "classes": ["u"]}, "the target 'y' is 'v' in row 2, which is none",
    ),
    "classes of several": ("a,y,z\n1,2,3\n", {"target": ["y", "z"], "classes": ["2"]}, "several target columns"),
    "text of several": ("a,y,z\n1,2,u\n", {"target": ["y", "z"]}, "the column 'z' is not numeric: row 1 holds 'u'"),
    "text as values": ("a,y\n1,u\n", {"target": "y", "classes": False}, "the column 'y' is not numeric"),
    "never a target": ("a,y,b\n1,,1\n", {"target": "y", "classes": True}, "the target 'y' is missing in every row"),
    "no label": ("i,a,y\n1,1,u\n2,1,\n", {"id": "i", "target": "y"}, "the sequence '2' has no 'y' at all"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options", "sentence"), WRONG.values(), ids=WRONG)
def test_a_fault_is_one_sentence(read, text, options, sentence):
    with pytest.raises(DataError) as refusal:
        read(text, **options)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("own.csv: ")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_broken_binary_table_is_refused(read, ending):
    content = write(pl.DataFrame({"a": [1.0, 2.0]}), ending)
    for broken in (b"garbage", content[: len(content) // 2]):
        with pytest.raises(DataError, match=f"it is no {ending} file, or it is broken: "):
            read(broken, ending)


@pytest.mark.parametrize("column", [[[1.0], [2.0]], [{"b": 1}, {"b": 2}], [datetime.date(2000, 1, 1)] * 2])
def test_a_column_that_is_no_list_of_numbers_is_named(read, column):
    content = write(pl.DataFrame({"a": column, "b": [1, 2]}), "parquet")
    with pytest.raises(DataError, match="the column 'a' is not numeric"):
        read(content, "parquet")
    with pytest.raises(DataError, match="the target 'a' is "):
        read(content, "parquet", target="a")


@pytest.mark.parametrize("classes", ["ab", [], ["a", "a"], [""]])
def test_classes_must_be_names(read, classes):
    with pytest.raises(UserError, match="classes must be different names"):
        read("a,y\n1,a\n", target="y", classes=classes)


def test_a_small_parquet_file_may_not_ask_for_much_memory(read, monkeypatch):
    content = write(pl.DataFrame({"a": np.zeros(100_000)}), "parquet")
    assert len(content) < 8000
    assert len(read(content, "parquet").x[0]) == 100_000
    monkeypatch.setattr("glstm.data.parsing.ALWAYS_ALLOWED", 799_999)
    with pytest.raises(DataError, match=r"it would unpack to 800,000 bytes from [0-9,]+, more than 100 times as many"):
        read(content, "parquet")


def test_an_infinite_number_in_parquet_is_refused(read):
    with pytest.raises(DataError, match="the column 'a' holds an infinite number in row 2"):
        read(write(pl.DataFrame({"a": [1.0, float("inf")]}), "parquet"), "parquet")


def test_without_polars_the_error_says_what_brings_it(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingPackage, match=r"reading tables needs polars: pip install 'glstm\[tables\]' brings it"):
        read("a\n1\n")
