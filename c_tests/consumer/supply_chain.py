#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/supply_chain.py finds each kind of fault in what the libraries are built from, and lists all crates."""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import licences  # noqa: E402
import supply_chain  # noqa: E402


def expect(faults, part):
    faults = list(faults)
    assert len(faults) == 1 and part in faults[0], faults


def changed_lock(folder, old, new):
    """A folder with the Cargo.toml, and with a Cargo.lock in which a text is replaced once."""
    lock = (ROOT / "Cargo.lock").read_text()
    assert old in lock
    (folder / "Cargo.toml").write_text((ROOT / "Cargo.toml").read_text())
    (folder / "Cargo.lock").write_text(lock.replace(old, new, 1))
    return folder


def check_sources(folder):
    expect(supply_chain.check_sources(changed_lock(folder, supply_chain.CRATES_IO, "git+https://example.org/fork")), "not from crates.io")
    expect(supply_chain.check_sources(changed_lock(folder, 'checksum = "', 'checksum = "0')), "no checksum")


def check_bill(crates):
    bill = supply_chain.bill()
    listed = {component["name"] for component in bill["components"]}
    assert {crate["name"] for crate in crates} <= listed
    known = {component["bom-ref"] for component in bill["components"]} | {"kvmem"}
    assert all({each["ref"], *each["dependsOn"]} <= known for each in bill["dependencies"])
    assert json.dumps(bill) == json.dumps(supply_chain.bill())


def main():
    crates = licences.linked_crates(ROOT)
    expect(supply_chain.check_twice([{"name": "a", "version": "1"}, {"name": "a", "version": "2"}]), "a is linked as 1 and 2")
    with tempfile.TemporaryDirectory() as folder:
        check_sources(pathlib.Path(folder))
    check_bill(crates)
    faults = supply_chain.check(licences.LIBRARIES.values())
    assert not faults, faults


main()
