"""Ids in addresses: any text, percent-encoded, slashes included.

The outer ring hands the address on as it was sent, so that an encoded slash does not look like a border between parts;
here each part is decoded.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Path
from starlette.convertors import Convertor, register_url_convertor

from doublefeature.server.schemas.base import MOST_ID


class IdConvertor(Convertor[str]):
    """One part of an address; bytes that are not UTF-8 become surrogates, which no text field lets through."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Decode a part."""
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        """Encode a part."""
        return quote(value, safe="")


register_url_convertor("id", IdConvertor())

UserId = Annotated[str, Path(min_length=1, max_length=MOST_ID, description="User id, percent-encoded.")]
ItemId = Annotated[str, Path(min_length=1, max_length=MOST_ID, description="Item id, percent-encoded.")]
