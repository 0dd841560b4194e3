"""The grammar of text tables, one byte at a time: what the fast checker is held against."""

from __future__ import annotations


def slow_records(text: bytes, delimiter: int, width: int) -> int | None:
    """The number of records, header included; None where the text is not in the grammar."""
    state, cells, records, begin = "start", 1, 0, True
    letters = [*text] if text.endswith(b"\n") or not text else [*text, None]
    for letter in letters:
        end = letter == 10 or letter is None
        if state == "quoted":
            if letter is None:
                return None
            state = "closed" if letter == 34 else "quoted"
        elif state == "return" and letter != 10:
            return None
        elif letter == 34 and state in ("start", "closed"):
            state, begin = "quoted", False
        elif letter == delimiter:
            state, cells, begin = "start", cells + 1, False
        elif end:
            if not (begin and width > 1):
                if cells != width:
                    return None
                records += 1
            state, cells, begin = "start", 1, True
        elif letter == 13:
            state = "return"
        elif state == "closed" or letter == 34:
            return None
        else:
            state, begin = "plain", False
    return records if state != "quoted" else None
