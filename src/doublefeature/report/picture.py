"""The users × items picture: leading features as coloured blocks, as one small PNG written with zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doublefeature.posterior.arranging import arrange, thin

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Pixels = NDArray[np.uint8]

COLOURS = ("3b7dd8", "e8871e", "2ca36b", "d6528f", "8b62d6", "c2a21a", "1fa6b8", "d94a3d")
"""Red, green and blue of the features, the same as the style sheet's `.s0` to `.s7`."""
MOST_ROWS = 300
MOST_COLUMNS = 400
"""Users and items drawn; of more, every so many in the order drawn."""

_TARGET = (600, 960)
_LARGEST_CELL = 28
_CELL_WITH_GAP = 10
_STRIPE = 5


@dataclass(frozen=True)
class Picture:
    """An image and what its rows and columns are."""

    png: bytes
    width: int
    height: int
    users: IntArray  # codes, from the top
    items: IntArray  # codes, from the left

    def data_uri(self) -> str:
        """Return the image as text that stands in for a file."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode('ascii')}"


def block_picture(user_members: BoolArray, item_members: BoolArray) -> Picture:
    """Draw features (at most as many as there are colours) as blocks; where they overlap, in stripes."""
    users = thin(arrange(user_members, item_members.sum(axis=0)), MOST_ROWS)
    items = thin(arrange(item_members, user_members.sum(axis=0)), MOST_COLUMNS)
    cells = user_members[users][:, None, :] & item_members[items][None, :, :]
    tall, wide = (min(_LARGEST_CELL, max(2, goal // n)) for goal, n in zip(_TARGET, cells.shape[:2], strict=True))
    pixels = _paint(cells, tall, wide)
    return Picture(write_png(pixels, COLOURS[: cells.shape[2]]), pixels.shape[1], pixels.shape[0], users, items)


def write_png(pixels: Pixels, colours: tuple[str, ...]) -> bytes:
    """Return a PNG of colour numbers: 0 is transparent, k is the k-th colour."""
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = pixels
    palette = bytes(3) + b"".join(bytes.fromhex(colour) for colour in colours)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"tRNS", b"\x00"),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _paint(cells: BoolArray, tall: int, wide: int) -> Pixels:
    """Return the colour number of every pixel: a cell's features take turns along the diagonals."""
    height, width = cells.shape[0] * tall, cells.shape[1] * wide
    down, across = np.arange(height), np.arange(width)
    shared = cells.sum(axis=2)[down // tall][:, across // wide]
    turn = ((down[:, None] + across) // _STRIPE) % np.maximum(shared, 1)
    pixels = np.zeros((height, width), np.uint8)
    before = np.zeros((height, width), np.int64)
    for feature in range(cells.shape[2]):
        inside = cells[:, :, feature][down // tall][:, across // wide]
        pixels[inside & (before == turn)] = feature + 1
        before += inside
    if min(tall, wide) >= _CELL_WITH_GAP:
        pixels[tall - 1 :: tall] = 0
        pixels[:, wide - 1 :: wide] = 0
    return pixels
