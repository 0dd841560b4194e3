"""Invented tables of special kinds for `dualquery demo`: payments between accounts, and where customers live.

Nobody is behind them. Like the survey they are drawn from fixed seeds, so that everybody sees the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Example:
    """Files to write, which of them is the private table, and what is asked about it."""

    title: str
    table: str
    files: dict[str, pa.Table | str]
    queries: str
    questions: tuple[str, ...]


REGIONS = ("North", "East", "South", "West", "Coast")
TRADES = ("household", "shop", "maker")
ACCOUNTS, PAYMENTS, CUSTOMERS = 400, 40_000, 20_000

GRAPH_SCHEMA = """# Payments between accounts. Accounts, their regions and trades are public; payments are not.
[graph]
source = "payer"
target = "payee"
vertices = "accounts.csv"

[[attribute]]
name = "region"
values = ["North", "East", "South", "West", "Coast"]

[[attribute]]
name = "trade"
values = ["household", "shop", "maker"]
"""

POINTS_SCHEMA = """# Where customers live. The bounds are those of the country, and public.
[points]
clamp = true

[points.columns]
lat = [47.2, 55.1]
lon = [5.8, 15.1]
"""


def payments() -> Example:
    """Households pay shops near them, shops pay makers anywhere."""
    rng = np.random.default_rng(20)
    region, trade = rng.integers(5, size=ACCOUNTS), rng.choice(3, size=ACCOUNTS, p=(0.7, 0.2, 0.1))
    likes = np.array([[0.2, 6.0, 0.5], [0.5, 0.6, 5.0], [3.0, 0.3, 2.0]])
    near = np.where(region[:, None] == region[None, :], 4.0, 1.0)
    chance = (
        likes[np.ix_(trade, trade)]
        * near
        * np.outer(rng.gamma(2, size=ACCOUNTS), rng.gamma(1, size=ACCOUNTS))
    )
    np.fill_diagonal(chance, 0.0)
    drawn = rng.choice(ACCOUNTS**2, size=PAYMENTS, p=(chance / chance.sum()).ravel())
    names = np.array([f"A{i:03d}" for i in range(ACCOUNTS)])
    return Example(
        "Payments that nobody made",
        "payments.csv",
        {
            "accounts.csv": pa.table(
                {
                    "vertex": names,
                    "region": np.array(REGIONS)[region],
                    "trade": np.array(TRADES)[trade],
                }
            ),
            "payments.csv": pa.table({"payer": names[drawn // ACCOUNTS], "payee": names[drawn % ACCOUNTS]}),
            "schema.toml": GRAPH_SCHEMA,
        },
        "cuts:region + cuts:trade + cuts:random:500",
        (
            "edges from {region = North} to {region = South}",
            "edges leaving {region = Coast}",
            "edges from {trade = household} to {trade = maker}",
            "edges within {region = East & trade = shop}",
            "edges leaving {A000 .. A049}",
        ),
    )


def customers() -> Example:
    """Around six towns of different size."""
    rng = np.random.default_rng(21)
    towns = np.array([[52.5, 13.4], [53.5, 10.0], [48.1, 11.6], [50.9, 6.9], [50.1, 8.7], [51.3, 12.4]])
    town = rng.choice(6, size=CUSTOMERS, p=(0.28, 0.17, 0.18, 0.15, 0.14, 0.08))
    held = towns[town] + rng.normal(size=(CUSTOMERS, 2)) * [0.35, 0.5]
    held = np.clip(held, [47.2, 5.8], [55.1, 15.1]).round(4).astype(np.float64)
    return Example(
        "Customers that nobody is",
        "customers.csv",
        {
            "customers.csv": pa.table({"lat": held[:, 0], "lon": held[:, 1]}),
            "schema.toml": POINTS_SCHEMA,
        },
        "points:random:1000",
        tuple(f"distance to (lat = {lat}, lon = {lon})" for lat, lon in towns.tolist()),
    )
