"""Columns of an Arrow table as numbers or cells, each value by a rule of its own.

No value changes how another is read: there is no type inference, and text that is no number is a missing
value of its own record, not a failure of the file. Nor does a column's type, which a writer may have chosen
by its first value: in a column of dates or lists every value is missing, as in one without any value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.missing import MISSING_TEXTS
from skelmix.errors import MissingExtra
from skelmix.statistics.domains import Categories

NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?$"


def pyarrow() -> Any:
    """The library, or one line that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("statistics of tables need pyarrow: pip install 'skelmix[parquet]'") from error
    return pyarrow


def numbers(array: Any) -> NDArray[np.float64]:
    """The values as float64, NaN where missing. What is no number counts as missing."""
    pa = pyarrow()
    if pa.types.is_dictionary(array.type):
        return _gather(numbers(array.dictionary), array.indices)
    if is_text(array.type):
        array = _parsed(_text(array))
    elif not _may_hold_numbers(array.type):
        return np.full(len(array), np.nan)
    elif not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        array = array.cast(pa.float64())
    values = array.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype=np.float64)


def _gather(values: NDArray[np.float64], indices: Any) -> NDArray[np.float64]:
    table: NDArray[np.float64] = np.append(values, np.nan)
    return table[_indices(indices, len(values))]


def _indices(indices: Any, null: int) -> NDArray[np.int64]:
    """Whole numbers, `null` in the place of nulls."""
    pa = pyarrow()
    if indices.null_count:
        indices = pa.compute.fill_null(indices.cast(pa.int64()), null)
    places: NDArray[np.int64] = indices.to_numpy(zero_copy_only=False)
    return places


def _may_hold_numbers(kind: Any) -> bool:
    types = pyarrow().types
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(numeric or types.is_boolean(kind) or types.is_null(kind) or is_text(kind))


def may_hold_categories(kind: Any) -> bool:
    """Whether values of a type can be those of a category: text, whole numbers, true and false."""
    types = pyarrow().types
    if types.is_dictionary(kind):
        return may_hold_categories(kind.value_type)
    return _may_hold_numbers(kind) and not types.is_decimal(kind)


def cells(array: Any, categories: Categories) -> NDArray[np.int32]:
    """The index of each value's category; unknown and missing values get that of "other"."""
    pa = pyarrow()
    if pa.types.is_dictionary(array.type):
        codes = cells(array.dictionary, categories)
        table: NDArray[np.int32] = np.append(codes, np.int32(categories.other))
        return table[_indices(array.indices, len(codes))]
    if pa.types.is_null(array.type) or not may_hold_categories(array.type):
        return np.full(len(array), categories.other, np.int32)
    cells_of: dict[int, Any]
    if is_text(array.type):
        kind, cells_of = pa.string(), dict(enumerate(categories.names))
        array = pa.compute.utf8_trim_whitespace(_text(array))
    elif pa.types.is_boolean(array.type):
        kind = pa.string()
        cells_of = {place: name.lower() for place, name in enumerate(categories.names)}
        array = array.cast(kind)
    else:
        kind = pa.int64()
        cells_of = {place: number for place, name in enumerate(categories.names)
                 if (number := _integer(name)) is not None}  # fmt: skip
        array = array if pa.types.is_int64(array.type) else _as_int64(array)
    places: NDArray[np.int32] = np.array([*cells_of, categories.other], np.int32)
    where = pa.compute.index_in(array, value_set=pa.array(list(cells_of.values()), kind), skip_nulls=True)
    return places[_indices(where, len(places) - 1)]


def not_numbers(array: Any) -> NDArray[np.bool_]:
    """Which values are neither numbers nor signs for "missing": to report to their owner."""
    pa = pyarrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not _may_hold_numbers(array.type):
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if not is_text(array.type):
        return np.zeros(len(array), np.bool_)
    compute = pa.compute
    text = compute.utf8_trim_whitespace(_text(array))
    known = compute.is_in(compute.utf8_lower(text), value_set=pa.array(MISSING_TEXTS))
    good = compute.or_(known, compute.match_substring_regex(text, NUMBER))
    return ~np.asarray(good.fill_null(True).to_numpy(zero_copy_only=False), np.bool_)


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds text or bytes."""
    types = pyarrow().types
    text = types.is_string(kind) or types.is_string_view(kind) or types.is_large_string(kind)
    plain = types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return bool(text or plain or types.is_large_binary(kind)) and not types.is_decimal(kind)


def without_views(batch: Any) -> Any:
    """The batch with string views as plain bytes: Arrow cannot pick rows of views."""
    types = pyarrow().types
    for place, field in enumerate(batch.schema):
        if types.is_string_view(field.type) or types.is_binary_view(field.type):
            batch = batch.set_column(place, field.name, as_bytes(batch.column(place)))
    return batch


def as_bytes(text: Any) -> Any:
    """Text or bytes of any type as binary, or as large binary: nothing is checked, nothing is changed."""
    pa = pyarrow()
    large = pa.types.is_large_string(text.type) or pa.types.is_large_binary(text.type)
    return text.cast(pa.large_binary() if large else pa.binary())


def _text(array: Any) -> Any:
    """Text as UTF-8; bytes that are not become U+FFFD in their own value only."""
    pa = pyarrow()
    array = as_bytes(array)  # writers do not always check text, and casting text to text does not
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        values = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        return pa.array(values, pa.string())


def _parsed(text: Any) -> Any:
    pa = pyarrow()
    compute = pa.compute
    text = compute.utf8_trim_whitespace(text)
    good = compute.match_substring_regex(text, NUMBER)
    plain = compute.replace_substring_regex(compute.if_else(good, text, None), r"^\+", "")
    return plain.cast(pa.float64())


def _as_int64(array: Any) -> Any:
    pa = pyarrow()
    if pa.types.is_floating(array.type):  # as pandas writes whole numbers when one of them is missing
        wide = array.cast(pa.float64())
        small = pa.compute.less(pa.compute.abs(wide), float(1 << 62))
        whole = pa.compute.and_(small, pa.compute.equal(pa.compute.floor(wide), wide))
        array = pa.compute.if_else(whole, wide, None)
    elif pa.types.is_uint64(array.type):  # above the range of int64 no category can be
        largest = pa.scalar((1 << 62) - 1, pa.uint64())  # not a Python integer: values would be cast to int64
        array = pa.compute.if_else(pa.compute.less_equal(array, largest), array, None)
    return array.cast(pa.int64())


def _integer(name: str) -> int | None:
    try:
        number = int(name)
    except ValueError:
        return None
    return number if str(number) == name and abs(number) < 1 << 62 else None
