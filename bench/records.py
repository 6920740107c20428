# SPDX-License-Identifier: Apache-2.0
"""Records of benches: bench/results/CLASS/PROGRAM.json, an object with commit, host, date and rows."""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"
CLASSES = ("cpu-2-cores", "cpu-16-cores", "h100", "h200", "two-gpus")


def rows_of(path):
    """The rows of a record, of the output of one program, or of a results.json of several programs."""
    found = json.loads(pathlib.Path(path).read_text())
    if isinstance(found, list):
        return found
    if "programs" in found:
        return [row for rows in found["programs"].values() for row in rows]
    common = found["common"]
    parameters = common["parameters"]
    return [{**common, **row, "parameters": {**parameters, **row["parameters"]}} for row in found["rows"]]


def write(path, head, rows):
    """Writes a record with one line per row. What all rows have in common is written once."""
    common, parameters = shared(rows), shared([row["parameters"] for row in rows])
    common["parameters"] = parameters
    lines = [{key: value for key, value in row.items() if key == "parameters" or key not in common} for row in rows]
    for line in lines:
        line["parameters"] = {key: value for key, value in line["parameters"].items() if key not in parameters}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**head, "common": common})[:-1] + ', "rows": [\n'
    path.write_text(text + ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n]}\n")


def shared(entries):
    return {key: value for key, value in entries[0].items() if all(key in each and each[key] == value for each in entries)}
