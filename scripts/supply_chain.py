#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks where the code in the libraries comes from, and lists it.

    supply_chain.py list FILE                # the crates in the libraries, in CycloneDX's format
    supply_chain.py check [ADVISORIES]       # fails for a crate that is not allowed

`check` fails for a crate of another source than crates.io, for one without a checksum, for a licence that scripts/licences.py does
not allow, and for two versions of a crate in one library, unless TWICE has the reason. ADVISORIES is a checkout of
https://github.com/RustSec/advisory-db: with it, `check` also fails for a crate with a known vulnerability.
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
# Advisories that do not apply, with the reason.
IGNORED = {}


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


def numbers(version):
    """Returns what orders versions: the three numbers, and whether it is a release."""
    release, _, before = version.split("+")[0].partition("-")
    return [*(int(part) for part in (release.split(".") + ["0", "0"])[:3]), not before]


def is_within(version, requirement):
    """Whether a version meets all comparisons of a requirement, such as `>= 1.2, < 2`."""
    return all(is_met(numbers(version), *re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*([0-9][^\s]*)", part.strip()).groups())
               for part in requirement.split(","))


def is_met(version, comparison, other):
    given, bound = [int(part) for part in re.split(r"[-+]", other)[0].split(".")], numbers(other)
    if comparison in ("^", "~", None):
        fixed = 1 if comparison == "~" and len(given) == 1 else 2 if comparison == "~" else next(
            (index + 1 for index, part in enumerate(given) if part), len(given))
        return version >= bound and version[:fixed] == bound[:fixed]
    return {">=": version >= bound, "<=": version <= bound, ">": version > bound, "<": version < bound,
            "=": version == bound}[comparison]


def read_advisory(path):
    return tomllib.loads(re.search(r"```toml\n(.*?)```", path.read_text(), re.DOTALL).group(1))


def check_advisories(crates, database):
    files = list(pathlib.Path(database).glob("crates/*/RUSTSEC-*.md"))
    if not files:
        yield f"{database} has no advisories: it is no checkout of advisory-db"
    advisories = [read_advisory(file) for file in files]
    for crate in crates:
        for advisory in advisories:
            about, versions = advisory["advisory"], advisory.get("versions", {})
            safe = [*versions.get("patched", []), *versions.get("unaffected", [])]
            if (about["package"] == crate["name"] and "withdrawn" not in about and about["id"] not in IGNORED
                    and not any(is_within(crate["version"], each) for each in safe)):
                yield f"{crate['name']} {crate['version']} has {about['id']}: {about.get('informational', 'a vulnerability')}"


def check(folders, database):
    """Returns what is wrong with the crates of the libraries in these folders."""
    faults = []
    for folder in folders:
        crates = licences.linked_crates(folder)
        for crate in crates:
            licences.check_licence(crate)
        faults += [*check_sources(folder), *check_twice(crates), *(check_advisories(crates, database) if database else [])]
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
    faults = check(licences.LIBRARIES.values(), *(arguments or [None]))
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main(*sys.argv[1:])
