"""The rows of a DataFrame in the driver, as an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kdsl.spark_internals.arrow import to_arrow
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def collect_arrow(df: DataFrame) -> pa.Table:
    """Bring all rows of a DataFrame to the driver, as ``DataFrame.toArrow`` does.

    ``toArrow`` fails where a struct that has NOT NULL members is NULL: it casts the rows to their own type, which Arrow
    refuses (see `kdsl.types.arrow.cast_array`). So members of structs lose their NOT NULL here.
    """
    from pyspark.sql import functions as F

    columns = [F.col(quote_name(f.name)).cast(_make_nullable(f.dataType)) for f in df.schema.fields]
    has_structs = any("struct<" in f.dataType.simpleString() for f in df.schema.fields)
    return to_arrow(df.select(columns) if has_structs else df)


def _make_nullable(kind: DataType) -> DataType:
    """A type whose structs, at any depth, have nullable members."""
    from pyspark.sql import types as s

    match kind:
        case s.StructType():
            members = ((f.name, _make_nullable(f.dataType), f.metadata) for f in kind.fields)
            return s.StructType([s.StructField(name, member, True, metadata) for name, member, metadata in members])
        case s.ArrayType():
            return s.ArrayType(_make_nullable(kind.elementType), kind.containsNull)
        case s.MapType():
            return s.MapType(_make_nullable(kind.keyType), _make_nullable(kind.valueType), kind.valueContainsNull)
        case _:
            return kind
