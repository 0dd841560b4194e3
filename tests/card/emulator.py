"""A card for machines that have none: our kernels, compiled for the processor, behind the few names of cupy we use.

What is emulated is what a kernel does, not how fast, nor what happens between threads that race: for that there are
the tests that want a card.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

HEADER = Path(__file__).with_name("emulator.h")
KERNEL = re.compile(r'extern "C" void (\w+)\(([^)]*)\)', re.S)


class Held(np.ndarray):
    """An array "on the card"."""

    def get(self) -> np.ndarray:
        return np.array(self)


def held(numbers: Any) -> Held:
    return np.array(numbers).view(Held)


class Kernels:
    """What `cupy.RawModule` is: kernels by their names."""

    def compile(self) -> None:
        """Done when it was made."""

    def __init__(self, folder: Path, code: str) -> None:
        code = re.sub(
            r"extern __shared__ (\w+) (\w+)\[\];", r"\1* \2 = (\1*)shared_room.data();", self._expanded(code)
        )
        launchers = []
        for name, parameters in KERNEL.findall(code):
            names = [each.split()[-1].strip("*") for each in parameters.split(",")]
            launchers.append(
                f'extern "C" void launch_{name}(unsigned gx, unsigned gy, unsigned threads, unsigned shared, '
                f"{parameters}) {{ launch(gx, gy, threads, shared, [=] {{ {name}({', '.join(names)}); }}); }}"
            )
        source = "\n".join([f'#include "{HEADER}"', code, *launchers])
        stem = folder / hashlib.sha256(source.encode()).hexdigest()[:16]
        library = stem.with_suffix(".so")
        if not library.exists():
            stem.with_suffix(".cpp").write_text(source)
            command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off"]
            subprocess.run([*command, str(stem.with_suffix(".cpp")), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))

    @staticmethod
    def _expanded(code: str) -> str:
        """The text once macros are replaced, so that kernels that are made by one have a line of their own."""
        plain = "\n".join(line for line in code.splitlines() if not line.startswith("#pragma"))
        done = subprocess.run(
            ["g++", "-E", "-P", "-x", "c++", "-D__global__=", "-"],
            input=plain,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def get_function(self, name: str) -> Any:
        function = getattr(self._library, f"launch_{name}")

        class Kernel:
            max_dynamic_shared_size_bytes = 0

            def __call__(self, grid: Any, block: Any, given: Any, shared_mem: int = 0) -> None:
                across = grid[1] if len(grid) > 1 else 1
                sizes = [ctypes.c_uint(each) for each in (grid[0], across, block[0], shared_mem)]
                function(*sizes, *[_argument(each) for each in given])

        return Kernel()


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    kinds = {
        "int32": ctypes.c_int,
        "int64": ctypes.c_longlong,
        "uint64": ctypes.c_ulonglong,
        "float32": ctypes.c_float,
        "float64": ctypes.c_double,
    }
    return kinds[value.dtype.name](value.item())


def emulated(folder: Path) -> SimpleNamespace:
    """What stands for cupy."""

    def stream(non_blocking: bool) -> Any:
        return nullcontext(SimpleNamespace(synchronize=lambda: None))

    errors: dict[str, Any] = {"OutOfMemoryError": type("OutOfMemoryError", (Exception,), {})}
    return SimpleNamespace(
        **{kind: getattr(np, kind) for kind in ("uint8", "uint32", "uint64", "int32", "int64", "float32")},
        asarray=held,
        zeros=lambda *given: held(np.zeros(*given)),
        empty=lambda *given: held(np.empty(*given)),
        tile=lambda *given: held(np.tile(*given)),
        RawModule=lambda code, options: Kernels(folder, code),
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 0),
        cuda=SimpleNamespace(
            Stream=stream,
            Device=lambda: SimpleNamespace(attributes={"MaxSharedMemoryPerBlockOptin": 227 << 10}, id=0),
            memory=SimpleNamespace(**errors),
            driver=SimpleNamespace(CUDADriverError=type("CUDADriverError", (Exception,), {})),
            runtime=SimpleNamespace(
                CUDARuntimeError=type("CUDARuntimeError", (Exception,), {}),
                memGetInfo=lambda: (1 << 30, 1 << 30),
            ),
        ),
    )
