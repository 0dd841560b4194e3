"""Run the cells of a notebook in this process, and write what they show into it and into a page.

    python tools/notebook.py docs/tutorial.ipynb      # runs it, fills in the outputs, writes docs/tutorial.md

The tests run the same cells and compare what they show with what is stored. No kernel is needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, run one after another in a folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        return [
            _run_cell("".join(cell["source"]), names, number)
            for number, cell in enumerate(notebook["cells"], start=1)
            if cell["cell_type"] == "code"
        ]
    finally:
        os.chdir(before)


def _run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if shown is not None:
        data = {"text/plain": _lines(repr(shown))}
        if hasattr(shown, "_repr_html_"):
            data["text/html"] = _lines(shown._repr_html_())
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(notebook: dict[str, Any]) -> str:
    """The notebook as Markdown, for the site."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            html = re.sub(r"<style.*?</style>", "", "".join(data.get("text/html", [])), flags=re.DOTALL)
            if html and "dataframe" not in html:  # a frame's own text is a table already
                parts.append("\n".join(line for line in html.splitlines() if line.strip()))
            else:
                text = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def main(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = iter(run(notebook, Path(folder)))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = next(outputs)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(notebook), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
