import numpy as np
import pytest

from glstm.data.ts_file import read_ts
from glstm.errors import DataError

NAN = np.nan


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes, **options):
        path = tmp_path / "gestures.ts"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_ts(path, **options)

    return read


def same(arrays, expected):
    assert len(arrays) == len(expected)
    for one, other in zip(arrays, expected):
        assert one.dtype == np.float64
        np.testing.assert_array_equal(one, np.array(other, dtype=np.float64))


def test_classes_unequal_lengths_several_dimensions_missing_values(read):
    found = read(
        "# A comment\n%more: one\n@problemName X\n@problemName\n@timeStamps false\n@missing true\n@univariate false\n"
        "@dimensions 2\n@equalLength false\n@seriesLength 0\n@classLabel true down Up\n\n@data\n"
        "1.5,-2e-1,?:4,NaN,6:Up\n# between\n 7 , 8:9,10 : down \n"
    )
    same(found.x, [[[1.5, 4], [-0.2, NAN], [NAN, 6]], [[7, 9], [8, 10]]])
    assert found.y.tolist() == ["Up", "down"]
    assert found.classes == ("down", "Up")
    assert (found.times, found.time_unit) == (None, None)


def test_target_values(read):
    found = read("@TIMESTAMPS FALSE\n@univariate true\n@equallength True\n@TargetLabel true\n@DATA\n1,2:0.5\n3,4:?\n")
    same(found.x, [[[1], [2]], [[3], [4]]])
    np.testing.assert_array_equal(found.y, [[0.5], [NAN]])
    assert found.classes is None


def test_classes_that_are_numbers_may_be_values(read):
    text = "@classLabel true 3 10 -1\n@data\n1,2:10\n3,4:-1\n"
    found = read(text, classes=False)
    assert (found.y.tolist(), found.classes) == ([[10], [-1]], None)
    with pytest.raises(DataError, match="line 3: the target 'up' is not a finite number"):
        read("@classLabel true up\n@data\n1,2:up\n", classes=False)


@pytest.mark.parametrize("tag", ["@classLabel false", "@targetlabel false", "@classlabel false\n@targetlabel false"])
@pytest.mark.parametrize("end", ["", ":"])  # aeon writes a colon where no target follows
def test_no_targets(read, tag, end):
    found = read(f"{tag}\n@data\n1,2:3,4{end}\n")
    same(found.x, [[[1, 3], [2, 4]]])
    assert found.y is None


def test_dates_are_seconds_since_1970(read):
    found = read(
        "@timestamps true\n@classlabel true 1 2\n@data\n"
        "(1970-01-01 00:00:00,241.5),(1970-01-01 00:01:00,?) , (1970-01-02,3):2\n"
        "(1970-01-01T01:00:00.5+01:00,1):1\n"
    )
    same(found.times, [[0, 60, 86400], [0.5]])
    same(found.x, [[[241.5], [NAN], [3]], [[1]]])
    assert found.time_unit == "seconds"
    assert found.y.tolist() == ["2", "1"]


def test_times_that_are_numbers_stay(read):
    found = read("@timestamps true\n@targetlabel true\n@data\n(1,10),(2.5,20):7\n")
    same(found.times, [[1, 2.5]])
    assert found.time_unit is None
    assert found.y.tolist() == [[7]]


@pytest.mark.parametrize("end", ["", ":"])
def test_dimensions_with_different_times_are_missing_where_they_have_none(read, end):
    found = read(f"@timestamps true\n@targetlabel false\n@data\n(0,1),(2,3):(1,5),(2,6),(4,7){end}\n")
    same(found.times, [[0, 1, 2, 4]])
    same(found.x, [[[1, NAN], [NAN, 5], [3, 6], [NAN, 7]]])


def test_line_ends_marks_and_comments_of_other_systems(read):
    found = read(b"\xef\xbb\xbf# caf\xe9\r\n@classLabel true \xc3\xa9\r\n@data\r\n1,2:\xc3\xa9\r\n\r\n")
    assert found.y.tolist() == ["é"]


HEAD = "@classLabel true a b\n"
WRONG = {
    "no data line": ("@classLabel true a\n", "gestures.ts is no .ts file of sequences: it has no line @data"),
    "no data": (f"{HEAD}@data\n# nothing\n", "gestures.ts, line 2: no sequence follows @data"),
    "data before @data": (f"{HEAD}1,2:a\n", "line 2: '1,2:a' is neither a tag such as @timeStamps nor a comment"),
    "binary": (b"\x00\x47\xff\xfe\n@data\n", "line 1: it is not text in UTF-8"),
    "no word on targets": ("@missing false\n@data\n1:a\n", "line 2: neither @classLabel nor @targetLabel"),
    "both": (f"{HEAD}@targetLabel true\n@data\n1:a", "line 2: @classLabel true and @targetLabel true exclude"),
    "no classes": ("@classLabel true\n@data\n1:a", "line 1: @classLabel true needs the names of the classes"),
    "class twice": ("@classLabel true a b a\n", "line 1: @classLabel names a class twice"),
    "long class": (f"@classLabel true {'u' * 201}\n", "line 1: @classLabel has a name of 201 characters; 200 are"),
    "not true or false": ("@missing perhaps\n", "line 1: @missing needs true or false after it, not 'perhaps'"),
    "no word": ("@equalLength\n", "line 1: @equalLength needs true or false"),
    "no number": ("@dimensions two\n", "line 1: @dimensions needs a whole number"),
    "tag twice": ("@missing true\n@Missing false\n", "line 2: @Missing is given a second time"),
    "late tag": (f"{HEAD}@data\n1:a\n@missing true\n", "line 4: '@missing true' comes after @data"),
    "unknown class": (f"{HEAD}@data\n1:a\n1:A\n", "line 4: the class 'A' is none of those that @classLabel names"),
    "no target": (f"{HEAD}@data\n1,2\n", "line 3: no target: after the values, a colon and the class should follow"),
    "target no number": ("@targetlabel true\n@data\n1:x\n", "line 3: the target 'x' is not a finite number"),
    "target infinite": ("@targetlabel true\n@data\n1:1e999\n", "line 3: the target '1e999' is not a finite number"),
    "univariate": (f"@univariate true\n{HEAD}@data\n1:2:a\n", "line 4: 2 dimensions where 1 belong"),
    "two claims": (
        f"@univariate true\n@dimensions 2\n{HEAD}@data\n1:2:a\n",
        "line 4: @univariate true and @dimensions 2",
    ),
    "dimensions": (f"@dimension 3\n{HEAD}@data\n1:2:a\n", "line 4: 2 dimensions where 3 belong"),
    "dimensions differ": (f"{HEAD}@data\n1:2:a\n1:a\n", "line 4: 1 dimension where 2 belong"),
    "unequal": (
        f"@equalLength true\n{HEAD}@data\n1,2:a\n1:a\n",
        "line 5: 1 value where @equalLength or @seriesLength",
    ),
    "series length": (f"@seriesLength 3\n{HEAD}@data\n1,2:a\n", "line 4: 2 values where @equalLength or @seriesLength"),
    "within one": (f"{HEAD}@data\n1,2:1:a\n", "line 3: dimension 2 has 1 value where dimension 1 has 2: all"),
    "missing": (f"@missing false\n{HEAD}@data\n1,?:a\n", "line 4: a value is missing, but the header says @missing"),
    "word": (f"{HEAD}@data\n1,2:3,x:a\n", "line 3: value 2 of dimension 2 is 'x'; a finite number is needed"),
    "infinite": (f"{HEAD}@data\n1,-inf:a\n", "line 3: value 2 of dimension 1 is '-inf'; a finite number is needed"),
    "python's number": (f"{HEAD}@data\n1_0:a\n", "line 3: value 1 of dimension 1 is '1_0'"),
    "other digits": (f"{HEAD}@data\n\u0661:a\n", "line 3: value 1 of dimension 1 is '\u0661'"),
    "nothing between": (f"{HEAD}@data\n1,,2:a\n", "line 3: value 2 of dimension 1 is ''"),
    "no values": (f"{HEAD}@data\n1::a\n", "line 3: dimension 2 has no values"),
    "long word": (f"{HEAD}@data\n{'x' * 99}:a\n", f"is '{'x' * 40}'...; a finite"),
    "times unannounced": (f"{HEAD}@data\n(0,1):a\n", "line 3: values with times in brackets, but the header does not"),
    "times announced": (f"@timestamps true\n{HEAD}@data\n(1,2):1,2):a\n", "line 4: dimension 2 is not a list of"),
    "no pair": (f"@timestamps true\n{HEAD}@data\n(1):a\n", "line 4: dimension 1: '(1)' is not a pair"),
    "open pair": (f"@timestamps true\n{HEAD}@data\n(1,2,(2,3):a\n", "line 4: dimension 1: '(1,2,(2,3)' is not a pair"),
    "other date": (
        f"@timestamps true\n{HEAD}@data\n(31.1.2007,2):a\n",
        "line 4: dimension 1: '31.1.2007' is not a time",
    ),
    "no time": (f"@timestamps true\n{HEAD}@data\n(NaN,2):a\n", "line 4: dimension 1: 'NaN' is not a time"),
    "dates and numbers": (
        f"@timestamps true\n{HEAD}@data\n(2007-01-01,2):a\n(5,2):a\n",
        "line 5: dimension 1: '5': times are dates or numbers, not both in one file",
    ),
    "time goes back": (
        f"@timestamps true\n{HEAD}@data\n(2,1),(1,2):a\n",
        "line 4: dimension 1: the time '1' is not after",
    ),
    "time stands": (
        f"@timestamps true\n{HEAD}@data\n(2,1),(2,2):a\n",
        "line 4: dimension 1: the time '2' is not after",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_a_fault_is_one_sentence_with_its_line(read, text, sentence):
    with pytest.raises(DataError) as refusal:
        read(text)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("gestures.ts")
    assert len(str(refusal.value).splitlines()) == 1


def test_claims_that_nothing_contradicts_are_no_faults(read):
    found = read("@univariate false\n@missing true\n@equalLength false\n@seriesLength 9\n@frequency 3\n"
                 "@classLabel true a(b) unused\n@data\n1,2:a(b)\n3,4:a(b)\n")  # fmt: skip
    assert len(found) == 2
    assert found.classes == ("a(b)", "unused")
