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
    if isinstance(found, dict) and "programs" in found:
        return [row for rows in found["programs"].values() for row in rows]
    return found["rows"] if isinstance(found, dict) else found


def write(path, record):
    """Writes a record with one line per row."""
    head = {key: value for key, value in record.items() if key != "rows"}
    rows = ",\n".join(json.dumps(row) for row in record["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + rows + "\n]}\n")
