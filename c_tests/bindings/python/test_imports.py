# SPDX-License-Identifier: Apache-2.0
"""The import of the package, and what it refuses."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import pytest

import kvmem
from kvmem import _nixl
from conftest import run

REFUSED = "try: import kvmem\nexcept ImportError as error: print(error)"


def test_importing_loads_the_library_only():
    """Types are created, and other modules imported, when they are used."""
    loaded = run("import kvmem, sys\nprint(open('/proc/self/maps').read(), *sys.modules)")
    for name in ("libcuda", "libnixl", "numpy", "asyncio", "typing", "kvmem._constants", "kvmem._errors"):
        assert name not in loaded
    assert "kvmem._library" in loaded


def test_functions_that_the_package_calls_exist():
    from kvmem._library import lib

    sources = pathlib.Path(kvmem.__file__).parent.rglob("*.py")
    called = {name for path in sources for name in re.findall(r"\blib\.(kvmem_\w+)", path.read_text())}
    assert len(called) > 100 and [name for name in sorted(called) if not hasattr(lib, name)] == []


def test_names_are_those_that_tools_see():
    stub = (pathlib.Path(kvmem.__file__).parent / "__init__.pyi").read_text()
    seen = set(re.findall(r"(\w+) as \1\b", stub)) | {"library_path"}
    assert seen == set(kvmem.__all__) and seen <= set(dir(kvmem))
    for name in kvmem.__all__:
        found = getattr(kvmem, name)
        assert not isinstance(found, type) or found.__module__ == "kvmem"
    with pytest.raises(AttributeError, match="nothing"):
        kvmem.nothing  # noqa: B018


def test_a_library_of_another_version_is_refused(tmp_path):
    assert "cannot be loaded" in run(REFUSED, KVMEM_LIBRARY=str(tmp_path / "x.so"))
    assert "is not libkvmem.so" in run(REFUSED, KVMEM_LIBRARY="libm.so.6")
    package = pathlib.Path(kvmem.__file__).parent
    shutil.copytree(package, tmp_path / "kvmem", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    versions = tmp_path / "kvmem/_versions.py"
    versions.write_text(versions.read_text().replace("ABI_VERSION = ", "ABI_VERSION = 4711"))
    message = run(REFUSED, KVMEM_LIBRARY=kvmem.library_path, PYTHONPATH=str(tmp_path))
    assert "this package was made for 4711" in message and "install the package of the same version" in message


def test_nixl_of_an_installed_wheel_is_found_without_a_setting():
    library = pathlib.Path(os.environ.get("KVMEM_NIXL_LIBRARY", ""))
    if not re.fullmatch(r"\.nixl_cu1\d\.mesonpy\.libs", library.parent.name):
        pytest.skip(f"KVMEM_NIXL_LIBRARY is {str(library)!r}, which is not in a wheel of NIXL")
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(library.parents[1])])
    assert run("import kvmem; print(kvmem.load_nixl())", KVMEM_NIXL_LIBRARY="", PYTHONPATH=paths).strip() == str(library)


@pytest.mark.parametrize(("driver", "versions", "found"), [(None, "12 13", 12), (13000, "12 13", 13), (12080, "12 13", 12), (12080, "13", 13), (13000, "", None)])
def test_of_two_wheels_of_nixl_that_of_the_driver_is_taken(driver, versions, found, tmp_path, monkeypatch):
    def info(out, _error):
        if driver is None:
            return kvmem.Status.UNAVAILABLE_CUDA
        out.driver_version = driver
        return 0

    names = {int(version): tmp_path / f".nixl_cu{version}.mesonpy.libs" / "libnixl_capi.so" for version in versions.split()}
    for library in names.values():
        library.parent.mkdir()
        library.touch()
    monkeypatch.setattr(_nixl, "lib", types.SimpleNamespace(kvmem_cuda_get_info=info))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert _nixl._installed() == (None if found is None else str(names[found]))


def test_python_without_the_gil_is_refused():
    message = run("import sys\nsys._is_gil_enabled = lambda: False\n" + REFUSED)
    assert "PYTHON_GIL=1" in message


def test_structs_are_those_of_the_compiler(tmp_path):
    """cffi computes sizes and offsets from the declarations; the compiler has them from the headers."""
    include, compiler = os.environ.get("KVMEM_TEST_INCLUDE"), os.environ.get("CC")
    if not include or not compiler:
        pytest.skip("KVMEM_TEST_INCLUDE and CC are not set")
    from kvmem._ffi import ffi

    rows = {}
    text = "".join(path.read_text() for path in pathlib.Path(include).rglob("*.h"))
    for name in re.findall(r"^typedef struct (kvmem_\w+) \{$", text, re.MULTILINE):
        described = ffi.typeof(name)
        if described.kind == "struct" and described.fields:
            rows[f"sizeof({name})"] = ffi.sizeof(name)
            rows |= {f"offsetof({name}, {field})": ffi.offsetof(name, field) for field, _ in described.fields}
    assert len(rows) > 400
    headers = sorted(path.relative_to(include) for path in pathlib.Path(include).rglob("*.h"))
    source = tmp_path / "structs.c"
    checks = [f'_Static_assert({expression} == {value}, "{expression}");' for expression, value in rows.items()]
    source.write_text("\n".join(["#include <stddef.h>", *(f"#include <{header}>" for header in headers), *checks, ""]))
    subprocess.run([compiler, "-std=c11", f"-I{include}", "-fsyntax-only", source], check=True, timeout=60)


def test_tools_can_read_all_objects_in_modules():
    """vLLM reads the __dict__ of each object in each module."""
    import importlib
    import pkgutil
    import sys

    for module in pkgutil.iter_modules(kvmem.__path__):
        if module.name.startswith("_"):  # kvmem.torch needs PyTorch
            importlib.import_module(f"kvmem.{module.name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "kvmem"]:
        for value in list(vars(sys.modules[name]).values()):
            hasattr(value, "__dict__")
