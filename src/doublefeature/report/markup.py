"""HTML that is well formed and escaped by construction.

`tag` is the only place where markup is written: whatever is not already `Html` is escaped, so that an id or a title can
never become markup.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable

LONGEST = 160
"""Characters of an id or a title that are shown."""
VOID = frozenset({"br", "hr", "img", "meta", "wbr"})

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Return any text as HTML; what HTML has no place for becomes a replacement character."""
    return text if isinstance(text, Html) else Html(html.escape(_UNPRINTABLE.sub("\ufffd", str(text))))


def join(*parts: object) -> Html:
    """Put pieces one after the other, escaping those that are not HTML yet and leaving out None."""
    return Html("".join(escape(part) for part in parts if part is not None))


def listed(parts: Iterable[object], between: str = ", ") -> Html:
    """Put pieces one after the other with something between them."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element.

    Names of attributes lose a trailing underscore, and the others become hyphens (`class_`, `aria_hidden`). None and
    False leave an attribute out, True writes it without a value.
    """
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.removesuffix("_").replace("_", "-")
        written.append(label if value is True else f'{label}="{escape(_plain(value))}"')
    opening = f"<{' '.join(written)}>"
    return Html(opening) if name in VOID else Html(f"{opening}{join(*children)}</{name}>")


def label(text: object) -> Html:
    """Return an id or a title of the user's, cut when long and kept from turning the text around it."""
    whole = str(text)
    return tag("bdi", whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…")


def paragraph(*parts: object, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return tag("p", *parts, class_=class_)


def bullets(rows: list[Html]) -> Html:
    """Return a list."""
    return tag("ul", *(tag("li", row) for row in rows))


def table(head: list[str], rows: list[list[object]], *, caption: object = None, class_: str | None = None) -> Html:
    """Return a table whose first column names the rows, inside a box that scrolls when it has to."""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))) if head else None
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    title = None if caption is None else tag("caption", caption)
    return tag("div", tag("table", title, top, tag("tbody", *body), class_=class_), class_="scroll", tabindex=0)


def count(number: float) -> str:
    """Return a whole number with thousands apart: 6,040."""
    return f"{round(number):,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 item, 31 items."""
    return f"{count(number)}\u00a0{one if number == 1 else many or one + 's'}"


def decimal(number: float, digits: int = 2) -> str:
    """Return a number with so many digits and a true minus; a dash where there is none."""
    if not math.isfinite(number):
        return "–"
    text = f"{number:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def sized(number: float) -> str:
    """Return a number with fewer digits the larger it is: 0.682, 12.8, −65,060."""
    size = abs(number)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return (
        f"{number:,.{digits}f}".replace("-", "−") if size >= 1000 and math.isfinite(number) else decimal(number, digits)
    )


def signed(number: float, digits: int = 2) -> str:
    """Return a number with its sign."""
    text = decimal(number, digits)
    return text if text[0] in "−–" or float(text) == 0 else f"+{text}"


def percent(share: float, digits: int = 0) -> str:
    """Return a share as 93 %; small and large shares never become 0 % or 100 % by rounding."""
    if not math.isfinite(share):
        return "–"
    least = 10.0**-digits
    value = 100.0 * share
    if 0.0 < value < least / 2:
        return f"< {least:.{digits}f}\u00a0%"
    if 100.0 - least / 2 <= value < 100.0:
        return f"> {100.0 - least:.{digits}f}\u00a0%"
    return f"{value:.{digits}f}\u00a0%"


def _plain(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
