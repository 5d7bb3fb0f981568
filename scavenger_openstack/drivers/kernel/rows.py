# SPDX-License-Identifier: Apache-2.0

"""Files of the kernel, and rows of them that begin with a key."""

from __future__ import annotations


def read(path: str) -> bytes:
    """Return all of a file: the kernel may give it page by page.

    :raises OSError: it cannot be read.
    """
    with open(path, 'rb', buffering=0) as file:
        return file.read()


def row(data: bytes, key: bytes) -> bytes:
    """Return what follows ``key`` in the first row that begins with it.

    :raises ValueError: there is no such row, or it is cut off.
    """
    start = 0 if data.startswith(key) else data.index(b'\n' + key) + 1
    start += len(key)
    return data[start:data.index(b'\n', start)]


def number(data: bytes, key: bytes) -> int:
    """The number behind ``key``, whatever follows it in its row.

    :raises ValueError: there is none.
    """
    return first_number(row(data, key))


def first_number(text: bytes) -> int:
    """The number that a text begins with.

    :raises ValueError: there is none.
    """
    words = text.split(None, 1)
    if not words:
        raise ValueError('no number')
    return int(words[0])


def total(data: bytes, *keys: bytes) -> int:
    """Return what the rows of ``keys`` add up to; one that is missing is 0.

    :raises ValueError: all are missing, or one holds no number.
    """
    numbers = [number(data, key) for key in keys
               if data.startswith(key) or b'\n' + key in data]
    if not numbers:
        raise ValueError('none of its rows')
    return sum(numbers)
