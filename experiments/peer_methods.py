"""Who is compared with whom on what: peers and their methods, cases, and the releases that one asks for.

Seconds are guesses, for the order of the points and for their number of runs: the cheap ones come first, and are
run more than once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.table.records import Records
from experiments.data import Data, kept
from experiments.harness import Value

FULL_RUNS, CHEAP = 5, 50.0  # runs of a release that takes less than so many processor seconds
DELTA = 1e-6
ORDER_OF_ROWS = 17  # seeds the order of rows of which a small table is the beginning
OWN, EXACT = (
    "own",
    "exact",
)  # how ε and δ become noise: as the peer does it, or the most noise-saving way there is


@dataclass(frozen=True)
class Method:
    """What a peer offers, and the processor seconds that it takes about, on binary and on wide attributes."""

    name: str
    narrow: float
    wide: float
    once: bool = False  # whether one run tells all, for it fails in each
    blind: bool = (
        False  # whether it never sees the workload, so that a release answers for tables of any order
    )
    accountings: tuple[str, ...] = (OWN, EXACT)  # exact alone: so tight is its own
    on_card: bool = False  # whether it is asked on a graphics card, where a run is cheap


@dataclass(frozen=True)
class Peer:
    """A package, the program that calls it, and what it offers."""

    name: str
    program: str
    requirements: tuple[str, ...]  # none: it runs where we run; the first is what the rest depends on
    methods: tuple[Method, ...]
    quick: tuple[str, ...] = ()  # those of its methods that the quick size can afford
    needs_torch: bool = False
    sources: tuple[str, ...] = ()  # packages that are on no index: the user names their folders


OURS = Peer(
    "dualquery", "run_dualquery.py", (), (Method("release", 4, 4, accountings=(EXACT,)),), quick=("release",)
)
NOISE = Peer(
    "independent noise",
    "run_dualquery.py",
    (),
    (Method("gaussian", 2, 2, accountings=(EXACT,)),),
    quick=("gaussian",),
)
OPENDP = Peer(
    "opendp",
    "run_opendp.py",
    ("opendp[mbi]==0.16.0", "pandas>=2.2"),  # mbi makes its rows with pandas, and does not ask for it
    (
        Method("MST", 55, 130, blind=True),
        Method("MST sampled", 56, 133, blind=True),
        Method("AIM 48 x 100", 245, 350),
        Method("AIM 48", 1500, 1250),
        Method("AIM", 1500, 3000),
    ),
    quick=("MST",),
)
DPMM = Peer(
    "dpmm",
    "run_dpmm.py",
    ("dpmm==0.1.9",),
    (
        Method("AIM 48 x 100", 105, 250),
        Method("PrivBayes", 146, 158, blind=True),
        Method("MST", 263, 251, blind=True),
        Method("AIM", 1000, 4000),
    ),
)
SMARTNOISE = Peer(
    "smartnoise-synth",
    "run_smartnoise.py",
    ("smartnoise-synth==1.0.8",),
    (
        Method("MWEM", 3, 3, once=True, accountings=(OWN,)),
        Method("MWEM in splits", 19, 217, accountings=(OWN,)),
        Method("AIM 48", 700, 2000),
        Method("AIM", 1500, 4000),
    ),
    needs_torch=True,
)
DPSYNTH = Peer(
    "dpsynth",
    "run_dpsynth.py",
    (
        "jax==0.11.0",
        "absl-py",
        "attrs",
        "chex",
        "dp-accounting==0.6.0",
        "etils[epath]",  # dpsynth imports it, and does not ask for it
        "more-itertools",
        "networkx",
        "optax",
        "pandas",
        "pydantic>=2.0",
        "pyyaml",
        "scipy",
        "tqdm",
    ),
    (
        Method("SWIFT 1e5", 100, 300, accountings=(EXACT,)),
        Method("SWIFT", 600, 2000, accountings=(EXACT,), on_card=True),
        Method("MST", 40, 200, blind=True),
        Method("AIM-GDP", 1000, 3000, accountings=(EXACT,)),
    ),
    sources=("dpsynth", "mbi"),
)
PEERS = (OURS, NOISE, OPENDP, DPMM, SMARTNOISE, DPSYNTH)
SOURCE_NAMES = tuple(name for peer in PEERS for name in peer.sources)


@dataclass(frozen=True)
class Case:
    """A data set, or so many of its rows, and all its tables of some order."""

    source: str
    order: int
    rows: int | None = None
    epsilons: tuple[float, ...] = (1.0,)
    peers: tuple[Peer, ...] = PEERS

    @property
    def data(self) -> str:
        return self.source if self.rows is None else f"{self.source} ({self.rows:,} rows)"

    @property
    def tables(self) -> str:
        return f"all {self.order}-way"

    def records(self, data: Data) -> Records:
        """The data set, or the first rows of it in an order drawn once."""
        whole = kept(data, self.source)
        if self.rows is None or self.rows >= whole.rows:
            return whole
        drawn = np.random.default_rng(ORDER_OF_ROWS).permutation(whole.rows)[: self.rows]
        return Records.from_rows(whole.domain, whole.to_rows()[drawn])


ALL_EPSILONS = (0.1, 1.0, 10.0)
NLTCS = Case("nltcs", 3, epsilons=ALL_EPSILONS)
ADULT_PAIRS = Case("adult", 2, epsilons=ALL_EPSILONS)
ADULT = Case("adult", 3, epsilons=ALL_EPSILONS)
SMALL, SMALLEST = (Case("adult", 2, rows=rows, peers=(OURS, NOISE, DPMM, DPSYNTH)) for rows in (3000, 1000))
KDD = Case("kddcup99", 3)
CASES = (NLTCS, ADULT_PAIRS, ADULT, SMALLEST, SMALL, KDD)
SOURCES = tuple(dict.fromkeys(case.source for case in CASES))


@dataclass(frozen=True)
class Release:
    """What one process is asked for."""

    case: Case
    peer: Peer
    method: str
    epsilon: float
    seed: int
    accounting: str = EXACT

    @property
    def key(self) -> dict[str, Value]:
        return {
            "data": self.case.data,
            "tables": self.case.tables,
            "epsilon": self.epsilon,
            "peer": self.peer.name,
            "method": self.method,
            "accounting": self.accounting,
            "run": self.seed,
        }

    @property
    def blind(self) -> bool:
        return any(method.blind for method in self.peer.methods if method.name == self.method)


def guess(method: Method, case: Case) -> float:
    """Processor seconds of one release, about; dpmm merges the values that small tables hardly have."""
    seconds = method.narrow if case.source == NLTCS.source else method.wide
    of_triples = 1.0 if method.blind else 3.0
    return seconds * {ADULT: of_triples, KDD: 20.0, SMALL: 0.4, SMALLEST: 0.4}.get(case, 1.0)


def runs_of(method: Method, case: Case) -> int:
    """Several where a run is cheap."""
    cheap = guess(method, case) < CHEAP or method.on_card
    return FULL_RUNS if cheap and not method.once else 1
