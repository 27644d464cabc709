"""The wire format over whole batches: where numbers end, and what they are.

Positions are places in a buffer that has room behind its last byte, so that a look ahead stays inside it.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdsl_formats._text.reading import bounds, content

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

PAD: Final = 24
VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5

_U = np.uint64
_STOPS = _U(0x8080808080808080)
_SEVENS = _U(0x7F7F7F7F7F7F7F7F)
_ONE, _TWO, _FOUR, _SEVEN, _EIGHT = (_U(n) for n in (1, 2, 4, 7, 8))
_PAIR_LOW, _PAIR_HIGH = _U(0x007F007F007F007F), _U(0x7F007F007F007F00)
_QUAD_LOW, _QUAD_HIGH = _U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000)
_OCT_LOW, _OCT_HIGH = _U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000)
_LOW_56 = _U((1 << 56) - 1)


@attrs.frozen(eq=False)
class Source:
    """The bytes of messages in one buffer.

    Attributes:
        data: The bytes, with room behind them.
        words: For each place the eight bytes from there on, as a number.
    """

    data: Bytes
    words: Numbers

    @classmethod
    def of(cls, messages: pa.BinaryArray) -> tuple[Source, Places, Places]:
        """The bytes of an array of messages, and where each begins and ends; a null one has bytes, too, maybe."""
        start, end = bounds(messages)
        held = content(messages)
        room = np.empty(len(held) + PAD, dtype=np.uint8)
        room[: len(held)] = held
        room[len(held) :] = 0
        words: Any = np.ndarray((len(room) - 7,), dtype="<u8", buffer=room, strides=(1,))
        return cls(room, words), start.astype(np.int64), end.astype(np.int64)

    def varints(self, places: Places) -> tuple[Numbers, Places | int, Mask | None]:
        """The numbers that begin at some places.

        Returns:
            The numbers; how many bytes each has, one number where all have the same; which of them are none (too
            long), None where all are right.
        """
        first = self.data.take(places)
        if not len(first) or int(first.max()) < 0x80:
            return first.astype(np.uint64), 1, None
        words = self.words[places]  # take would copy all words first, since they overlap
        stops = ~words & _STOPS
        low = stops & (~stops + _ONE)
        size = (np.bitwise_count(low - _ONE).astype(np.int64) + 1) >> 3
        made = _packed(words & (low - _ONE) & _SEVENS)
        long = stops == 0
        if not long.any():
            return made, size, None
        which = np.flatnonzero(long)
        at = places[which]
        ninth, tenth = self.data[at + 8], self.data[at + 9]
        whole = _packed(words[which] & _SEVENS) & _LOW_56
        whole |= (ninth & np.uint8(0x7F)).astype(np.uint64) << _U(56)
        is_ten = ninth >= 0x80
        whole |= np.where(is_ten, tenth & np.uint8(1), np.uint8(0)).astype(np.uint64) << _U(63)
        made[which] = whole
        size[which] = 9 + is_ten
        bad = np.zeros(len(places), dtype=bool)
        bad[which] = is_ten & (tenth > 1)
        return made, size, bad


def _packed(words: Numbers) -> Numbers:
    """Eight groups of seven bits, one in each byte, as one number."""
    words = (words & _PAIR_LOW) | ((words & _PAIR_HIGH) >> _ONE)
    words = (words & _QUAD_LOW) | ((words & _QUAD_HIGH) >> _TWO)
    return (words & _OCT_LOW) | ((words & _OCT_HIGH) >> _FOUR)


def unzigzag(numbers: Numbers) -> Numbers:
    """Numbers of ``sint32`` and ``sint64`` as two's complements."""
    return (numbers >> _ONE) ^ (~(numbers & _ONE) + _ONE)


def zigzag(numbers: npt.NDArray[np.int64]) -> Numbers:
    """Signed numbers as ``sint32`` and ``sint64`` write them."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def varint_sizes(numbers: Numbers) -> Places:
    """How many bytes each number has as a varint."""
    size = np.ones(len(numbers), dtype=np.int64)
    largest = int(numbers.max()) if len(numbers) else 0
    bound = 1 << 7
    while bound <= largest:
        size += numbers >= _U(bound)
        bound <<= 7
        if bound >= 1 << 64:
            break
    return size


def write_varints(target: Bytes, places: Places, numbers: Numbers, sizes: Places) -> None:
    """Write numbers as varints into a buffer."""
    longest = int(sizes.max()) if len(sizes) else 0
    if longest <= 1:
        target[places] = numbers.astype(np.uint8)
        return
    which: Any = slice(None)
    for i in range(longest):
        if i:
            which = np.flatnonzero(sizes > i)
        part = ((numbers[which] >> _U(7 * i)) & _U(0x7F)).astype(np.uint8)
        part |= (sizes[which] > i + 1).astype(np.uint8) << np.uint8(7)
        target[places[which] + i] = part
