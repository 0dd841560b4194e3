"""How a table writes its dates, where it is not ISO 8601: `format = "%d.%m.%Y"`.

    %d %m %Y    day, month and year in figures; %y the last two of a year from 1969 to 2068
    %b          the month by its first three letters in English
    %H %M %S    hour, minute and second

A day or a month of one figure may lack its zero where no other figures touch it. A text is read by the format alone,
and so is every record by itself: no other text can change what it means.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache

from dualquery.errors import SchemaError

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_READ = {
    "d": "[0-9]{1,2}",
    "m": "[0-9]{1,2}",
    "b": "|".join(MONTHS),
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "H": "[0-9]{1,2}",
    "M": "[0-5][0-9]",
    "S": "[0-5][0-9]|60",
}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_OF_A_KIND = {"d": "d", "m": "m", "b": "m", "Y": "Y", "y": "Y", "H": "H", "M": "M", "S": "S"}


def check_format(format: str, where: str, first: int, last: int) -> None:
    """Refuse a format that does not say which period a text names, of those from the first year to the last."""
    said = _DIRECTIVE.findall(format)
    if unknown := [each for each in said if each not in _READ]:
        known = ", ".join(f"%{each}" for each in _READ)
        raise SchemaError(
            f"{where}: 'format' has '%{unknown[0]}'; it may have {known}, each with its % before it"
        )
    kinds = [_OF_A_KIND[each] for each in said]
    wanted = "YmdHMS"[: len(kinds)]
    if not kinds or set(kinds) != set(wanted) or len(set(kinds)) < len(kinds):
        raise SchemaError(
            f"{where}: 'format' must name the year, then if it likes the month, the day, the hour and so on, "
            'each once: "%d.%m.%Y"'
        )
    if "y" in said and not 1969 <= first <= last <= 2068:
        raise SchemaError(f"{where}: '%y' is for years from 1969 to 2068; 'from' and 'to' must lie there")


def kind_written(format: str) -> str:
    """The period that texts of this format name."""
    said = {_OF_A_KIND[each] for each in _DIRECTIVE.findall(format)}
    return "hour" if "H" in said else "day" if "d" in said else "month" if "m" in said else "year"


def moment_in(text: str, format: str) -> datetime | None:
    """The beginning of the period that a text names, or None."""
    found = _pattern(format).fullmatch(text.strip())
    if found is None:
        return None
    said = found.groupdict()
    month = MONTHS.index(said["b"].title()) + 1 if "b" in said else int(said.get("m", 1))
    year = int(said["Y"]) if "Y" in said else (int(said["y"]) + 31) % 100 + 1969
    try:
        return datetime(year, month, int(said.get("d", 1)), int(said.get("H", 0)))
    except ValueError:
        return None


def moment_text(moment: datetime, format: str) -> str:
    """A moment as the format writes it, in English whatever the machine speaks."""
    said = {
        "d": f"{moment.day:02}",
        "m": f"{moment.month:02}",
        "b": MONTHS[moment.month - 1],
        "Y": f"{moment.year:04}",
        "y": f"{moment.year % 100:02}",
        "H": f"{moment.hour:02}",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
    }
    return _DIRECTIVE.sub(lambda found: said[found[1]], format)


@cache
def _pattern(format: str) -> re.Pattern[str]:
    parts, end, format = [], 0, format.strip()
    for found in _DIRECTIVE.finditer(format):
        parts.append(re.escape(format[end : found.start()]))
        touched = "%" in (format[: found.start()][-2:-1], format[found.end() :][:1])
        figures = _READ[found[1]].replace("{1,2}", "{2}") if touched else _READ[found[1]]
        parts.append(f"(?P<{found[1]}>{figures})")
        end = found.end()
    return re.compile("".join([*parts, re.escape(format[end:])]), re.IGNORECASE | re.ASCII)
