"""Values of a table again: the inverse of the encoding, and the nearest values of numbers that are none of a table."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.ingesting.columns import TableColumn, encode
from bigkpca.ingesting.decoding import decode

KINDS = {
    "text": (TableColumn("k", "text", ("a", "b", "ü")), st.sampled_from(["a", "b", "ü"]), pa.string()),
    "characters": (
        TableColumn("s", "characters", ("A", "C"), length=4),
        st.text("AC", max_size=4, min_size=1),
        pa.string(),
    ),
    "boolean": (TableColumn("b", "boolean"), st.booleans(), pa.bool_()),
    "date": (TableColumn("d", "date"), st.integers(-(10**9), 10**10), pa.timestamp("s")),
    "number": (TableColumn("x", "number"), st.floats(allow_nan=False, allow_infinity=False), pa.float64()),
}


@given(name=st.sampled_from(list(KINDS)), data=st.data())
def test_what_is_encoded_is_decoded(name, data):
    column, values, kind = KINDS[name]
    before = pa.array(data.draw(st.lists(values, min_size=1, max_size=9)), kind)
    assert decode(encode(before, column)[0], column).to_pylist() == before.to_pylist()


def test_other_numbers_become_the_nearest_values():
    found = {name: KINDS[name][0] for name in KINDS}
    assert decode(np.array([[0.4, 0.5, 0.1], [-1, -2, -0.5]]), found["text"]).to_pylist() == ["b", "ü"]
    assert decode(np.array([[0.6], [0.4], [-3]]), found["boolean"]).to_pylist() == [True, False, False]
    assert decode(np.array([[1.4, 2.2, -0.3, 9.0]]), found["characters"]).to_pylist() == ["ACC"]
    assert str(decode(np.array([[15706.5 - 1e-6]]), found["date"])[0]) == "2013-01-01 12:00:00"


def test_levels_come_back_by_name_and_categories_that_were_filled_in_are_missing():
    size = TableColumn("size", "ordinal", ("low", "mid", "high"))
    assert decode(np.array([[0.0], [1.4], [9.0], [-1.0]]), size).to_pylist() == ["low", "mid", "high", "low"]
    filled = TableColumn("k", "text", ("a", "b"), fills=(0.25, 0.75))
    assert decode(np.array([[0.25, 0.75], [0.0, 1.0]]), filled).to_pylist() == [None, "b"]
