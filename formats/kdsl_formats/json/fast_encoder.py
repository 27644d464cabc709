from __future__ import annotations
import pyarrow as pa
from kdsl.formats import *
from kdsl_formats.json.reference_encoder import *


class JsonEncoder:
    def __init__(self, row, rules):
        self.r = ReferenceEncoder(row, rules)

    def encode(self, rows):
        out = []
        bad = []
        for i, m in enumerate(self.r.messages(rows)):
            if isinstance(m, FieldError):
                bad.append(BadRecord(i, str(m)))
                m = None
            out.append(m)
        return Encoded(pa.array(out, pa.binary()), tuple(bad))
