#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks where the code in the libraries comes from, and lists it.

    supply_chain.py list FILE                # the crates in the libraries, in CycloneDX's format
    supply_chain.py check                    # fails for a crate that is not allowed

`check` fails for a crate of another source than crates.io, for one without a checksum, for a licence that scripts/licences.py does
not allow, and for two versions of a crate in one library, unless TWICE has the reason: what is linked, in each run of the tests. What is
used at build time, and advisories, are those of scripts/crates-test.sh.
"""
import json
import pathlib
import re
import sys
import tomllib

import licences

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
# Crates that are linked twice, and which of their users needs the older version.
TWICE = {}


def locked(folder):
    """Returns the packages of a Cargo.lock, by name and version."""
    packages = tomllib.loads((folder / "Cargo.lock").read_text())["package"]
    return {(package["name"], package["version"]): package for package in packages}


def check_sources(folder):
    own = tomllib.loads((folder / "Cargo.toml").read_text())["package"]["name"]
    for (name, version), package in locked(folder).items():
        if name == own:
            continue
        if package.get("source") != CRATES_IO:
            yield f"{name} {version} comes from {package.get('source', 'a folder')}, not from crates.io"
        elif not re.fullmatch("[0-9a-f]{64}", package.get("checksum", "")):
            yield f"{name} {version} has no checksum in {folder}/Cargo.lock"


def check_twice(crates):
    seen = {}
    for crate in crates:
        if crate["name"] in seen and crate["name"] not in TWICE:
            yield f"{crate['name']} is linked as {seen[crate['name']]} and {crate['version']}; update its users, or name it in TWICE"
        seen[crate["name"]] = crate["version"]


def check(folders):
    """Returns what is wrong with the crates of the libraries in these folders."""
    faults = []
    for folder in folders:
        crates = licences.linked_crates(folder)
        for crate in crates:
            licences.check_licence(crate)
        faults += [*check_sources(folder), *check_twice(crates)]
    return faults


def component(crate, checksums):
    name, version = crate["name"], crate["version"]
    return {"type": "library", "bom-ref": f"pkg:cargo/{name}@{version}", "name": name, "version": version,
            "purl": f"pkg:cargo/{name}@{version}", "licenses": [{"expression": licences.check_licence(crate).replace("/", " OR ")}],
            "hashes": [{"alg": "SHA-256", "content": checksums[name, version]["checksum"]}]}


def bill():
    """Returns the list. It has neither a time nor a serial number, so that equal sources give equal bytes."""
    components, libraries = {}, []
    for library, folder in licences.LIBRARIES.items():
        own, checksums = tomllib.loads((folder / "Cargo.toml").read_text())["package"], locked(folder)
        crates = [component(crate, checksums) for crate in licences.linked_crates(folder)]
        components |= {each["bom-ref"]: each for each in crates}
        file = library.split(",")[0]
        libraries.append({"type": "library", "bom-ref": file, "name": file, "version": own["version"],
                          "licenses": [{"expression": own["license"]}]})
        libraries[-1]["depends"] = sorted(each["bom-ref"] for each in crates)
    depends = [{"ref": each["bom-ref"], "dependsOn": each.pop("depends")} for each in libraries]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {"type": "library", "bom-ref": "kvmem", "name": "kvmem", "version": libraries[0]["version"]}},
            "components": libraries + [components[ref] for ref in sorted(components)],
            "dependencies": [{"ref": "kvmem", "dependsOn": [each["ref"] for each in depends]}, *depends]}


def main(command, *arguments):
    if command == "list":
        pathlib.Path(arguments[0]).write_text(json.dumps(bill(), indent=1) + "\n")
        return
    faults = check(licences.LIBRARIES.values())
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main(*sys.argv[1:])
