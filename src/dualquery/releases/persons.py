"""Whether what is protected, what the schema says and what was read fit together: a record, or a person."""

from __future__ import annotations

from dualquery.errors import DualQueryError
from dualquery.privacy.neighbours import Neighbours
from dualquery.table.schema import Schema


def records_per_person(schema: Schema, neighbours: Neighbours) -> int | None:
    """How many records of a person are read, None for all; refused where schema and neighbours do not agree."""
    most = neighbours.records_per_person
    if most is None:
        if schema.unit is not None and not schema.long:
            raise DualQueryError(
                f"the schema says whose record a row is (unit = '{schema.unit}'), so a person is to be "
                f"protected and not one record: use --neighbours person-{neighbours.value} with "
                "--records-per-person K, or remove the unit"
            )
        return None
    record_level = neighbours.value.removeprefix("person-")
    if schema.unit is None:
        raise DualQueryError(
            f"neighbours '{neighbours.value}' protect a person, and the schema does not say whose record a row "
            f'is: name that column in its section [table] (unit = "..."), or use --neighbours {record_level}'
        )
    if schema.long:
        raise DualQueryError(
            f"with long = true all rows of a unit are one record, which --neighbours {record_level} protects: "
            "use that, without --records-per-person"
        )
    return most


def check_records(found: int | None, schema: Schema, neighbours: Neighbours) -> None:
    """Records that are encoded already know how many a person has; nobody may have more than is charged."""
    most = neighbours.records_per_person
    if most is None:
        records_per_person(schema, neighbours)
        if found is not None:
            raise DualQueryError(
                f"the records were read as those of persons, at most {found} of each, so a person is to be "
                f"protected: use the neighbours person-{neighbours.value}"
            )
    elif found is None or found > most:
        raise DualQueryError(
            f"the records may hold more than {most} of a person; read them with "
            f"encode(table, schema, records_per_person={most})"
        )
