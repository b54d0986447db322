"""One person, many records: bound what each owner's records add up to.

Amplitudes are chosen so that an owner with at most `rows` records is within the radius. An owner with more
has the sum of its records' vectors scaled down to the radius, in exact integers. How many owners that
concerns stays inside the party. Records without an owner are left out: they could all be one person's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.arrays import IntArray
from skelmix.datasets.missing import MISSING_TEXTS
from skelmix.statistics.accumulate import Accumulator, entries
from skelmix.statistics.arrow import as_bytes, is_text, pyarrow
from skelmix.statistics.layout import Layout

_MOST_ENTRIES = 1 << 24  # int64 numbers in memory at a time, for owners with many records
Read = Callable[[], Iterator[Any]]


def add_owners(
    read: Read, owner: str, prolific: Any, accumulator: Accumulator, layout: Layout, radius: int, rows: int
) -> None:
    """Add each owner's records, bounded; `read()` starts the party's file from its beginning.

    prolific: the owners with more than `rows` records, as `prolific_owners` finds them.
    """
    pa = pyarrow()
    for batch in read():
        owners = _plain(batch.column(owner))
        light = pa.compute.and_(
            pa.compute.is_valid(owners), pa.compute.invert(pa.compute.is_in(owners, value_set=prolific))
        )
        accumulator.add(batch.filter(light))
    step = max(1, _MOST_ENTRIES // layout.dimension)
    for start in range(
        0, max(1, len(prolific)), step
    ):  # the file is read again even if nobody has many records
        group = prolific.slice(start, step)
        for vector in _sums(read, owner, group, layout, radius, rows):
            accumulator.add_vector(scaled_to(vector, radius))


def _plain(owners: Any) -> Any:
    """The owners' names without spaces around them, null where nobody is named: by "", "NA", NaN and so on.

    Byte for byte otherwise: two owners must not become one because neither name is UTF-8.
    """
    pa = pyarrow()
    compute, types = pa.compute, pa.types
    if types.is_dictionary(owners.type):
        owners = owners.dictionary_decode()
    nobody = None
    if is_text(owners.type):
        owners = as_bytes(owners)
        wide = types.is_large_binary(owners.type)
        text = pa.large_string() if wide else pa.string()
        owners = compute.ascii_trim_whitespace(owners.view(text))
        nobody = compute.is_in(compute.ascii_lower(owners), value_set=pa.array(MISSING_TEXTS, text))
        owners = owners.view(pa.large_binary() if wide else pa.binary())
    elif types.is_floating(owners.type):
        nobody = compute.is_nan(owners)
    return owners if nobody is None else compute.if_else(nobody, pa.scalar(None, owners.type), owners)


def prolific_owners(source: Iterator[Any], owner: str, rows: int) -> Any:
    """The owners with more than `rows` records, an Arrow array."""
    pa = pyarrow()
    counted = None
    for batch in source:
        pairs = _plain(batch.column(owner)).drop_null().value_counts()
        table = pa.table({"owner": pairs.field("values"), "count": pairs.field("counts")})
        counted = table if counted is None else pa.concat_tables([counted, table])
        if counted.num_rows > 1 << 20:
            counted = _merged(counted)
    if counted is None:
        return pa.nulls(0)
    counted = _merged(counted)
    return counted.filter(pa.compute.greater(counted["count"], rows))["owner"].combine_chunks()


def _merged(counted: Any) -> Any:
    merged = counted.group_by("owner").aggregate([("count", "sum")])
    return pyarrow().table({"owner": merged["owner"], "count": merged["count_sum"]})


def _sums(read: Read, owner: str, group: Any, layout: Layout, radius: int, rows: int) -> NDArray[np.int64]:
    """The sum of each owner's records, (owners, dimension)."""
    pa = pyarrow()
    sums = np.zeros((len(group), layout.dimension), np.int64)
    for batch in read():
        where = pa.compute.index_in(_plain(batch.column(owner)), value_set=group, skip_nulls=True)
        selected = batch.filter(pa.compute.is_valid(where))
        index = where.drop_null().to_numpy(zero_copy_only=False)
        for places, values in entries(selected, layout, radius, rows):
            np.add.at(sums, (index, places), values)
    return sums


def scaled_to(vector: IntArray, radius: int) -> IntArray:
    """The vector itself when its exact L2 norm is at most `radius`, else scaled towards zero until it is."""
    places = np.flatnonzero(vector)
    values = [int(value) for value in vector[places]]
    squares = sum(value * value for value in values)
    if squares <= radius * radius:
        return vector
    norm = math.isqrt(squares) + 1  # above the norm, so the quotients' norm is below the radius
    scaled = np.zeros_like(vector)
    scaled[places] = [(abs(value) * radius // norm) * (1 if value > 0 else -1) for value in values]
    return scaled
