# SPDX-License-Identifier: Apache-2.0
"""Workers of kvmem.vllm's handover find each other in a folder or in etcd."""

import pathlib
import socket
import subprocess
import threading

import pytest

import kvmem
from kvmem.vllm._offer import agent_name
from kvmem.vllm._peers import join
from vllm_workers import WAIT, check, fill, offer, settings, start  # noqa: F401


@pytest.fixture
def etcd(tmp_path, request):
    """The URL of a server of etcd, which has TLS if the case gives files for it."""
    secure = getattr(request, "param", None) and request.getfixturevalue(request.param)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        url, peers = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (first, second))
    tls = []
    if secure:
        url = url.replace("http", "https")
        tls = ["--cert-file", secure["certificate_file"], "--key-file", secure["key_file"], "--trusted-ca-file", secure["ca_file"], "--client-cert-auth"]
    process = subprocess.Popen(
        [
            "etcd", "--name", "test", "--data-dir", tmp_path / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"test={peers}",
            "--logger", "zap", "--log-outputs", "stderr", "--unsafe-no-fsync", *tls,
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "serving client traffic" in line:
            break
    else:
        raise AssertionError(f"etcd does not start: {''.join(lines[-5:])}")
    reader = threading.Thread(target=process.stderr.read, daemon=True)  # it must not wait for a full pipe
    reader.start()
    yield url
    process.kill()
    process.wait()
    reader.join()
    process.stderr.close()


@pytest.fixture
def certificates(tmp_path):
    """An authority, and its certificate for the server and its clients."""
    names = {name: str(tmp_path / name) for name in ("ca_file", "certificate_file", "key_file")}
    authority, asked, extensions = (str(tmp_path / name) for name in ("authority.key", "asked", "extensions"))
    pathlib.Path(extensions).write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for arguments in (
        [*new, "-x509", "-subj", "/CN=authority", "-keyout", authority, "-out", names["ca_file"]],
        [*new, "-subj", "/CN=kvmem", "-keyout", names["key_file"], "-out", asked],
        ["x509", "-req", "-in", asked, "-CA", names["ca_file"], "-CAkey", authority, "-CAcreateserial", "-extfile", extensions, "-out", names["certificate_file"]],
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=WAIT)
    return names


@pytest.mark.parametrize("access", ["mapped", "nixl"])
def test_engines_find_each_other_in_etcd(start, etcd, access, caplog):
    prefill, decode = start("p", directory=etcd), start("d", directory=etcd, block_size=8, access=access, produces=False)
    fill(prefill, (3, 1, 7), 10)
    prefill.hold(3, 1, 7)
    decode.pull(offer((3, 1, 7), 10), [5, 4])
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, [5, 4], 10)
    assert decode.exchange.counters["mapped_bytes" if access == "mapped" else "nixl_bytes"] > 0
    # Decode waits for a request that prefill does not have yet; prefill ends, and decode learns it from etcd.
    decode.pull(offer((3, 1, 7), 10, request="never"), [5, 4], request="waits")
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    assert decode.wait(1) == {"waits"} and decode.exchange.failed_requests == {"waits"}
    assert "has ended" in caplog.text
    with pytest.raises(ValueError, match="another engine has published .* in http://127.0.0.1"):
        join(settings({"directory": etcd}), decode.agent.name)


@pytest.mark.parametrize("etcd", ["certificates"], indirect=True)
def test_engines_find_each_other_in_etcd_with_certificates(start, etcd, certificates):
    prefill, decode = start("p", directory=etcd, **certificates), start("d", directory=etcd, produces=False, **certificates)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 8), [5, 4])
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, [5, 4], 8)
    with pytest.raises(ValueError, match="kvmem: directory https://127.0.0.1.* cannot be used: "):
        join(settings({"directory": etcd}), "vllm-x-0")


def test_the_directory_is_asked_once_per_peer_and_again_after_a_restart(start, monkeypatch):
    prefill, decode = start("p"), start("d", produces=False)
    asked = []
    look_up = kvmem.Directory.look_up
    monkeypatch.setattr(kvmem.Directory, "look_up", lambda self, name, timeout: asked.append(name) or look_up(self, name, timeout))

    def hand_over(source, request):
        fill(source, (3, 1), 8)
        source.hold(3, 1, request=request)
        decode.pull(offer((3, 1), 8, request=request), [5, 4], request=request)
        assert decode.wait(1) == {request} and not decode.exchange.failed_requests and source.wait(0) == {request}
        check(decode, [5, 4], 8)

    for number in range(3):
        hand_over(prefill, str(number))
    assert asked == [agent_name("p", 0), agent_name("d", 0)]
    prefill.close()
    decode.cache[:] = 0
    hand_over(start("p"), "again")
    assert asked.count(agent_name("p", 0)) >= 3  # also as it starts


def test_a_directory_that_cannot_be_used_is_one_sentence(tmp_path, start):
    with pytest.raises(ValueError, match="kvmem: directory .*none/agents cannot be used: "):
        join(settings({"directory": str(tmp_path / "none" / "agents")}), "vllm-x-0")
    with pytest.raises(ValueError, match="kvmem: directory http://127.0.0.1:1 cannot be used: "):
        join(settings({"directory": "http://127.0.0.1:1"}), "vllm-x-0")
    with pytest.raises(ValueError, match="kvmem: directory http://127.0.0.1:1 cannot be used: .*No such file .*none"):
        join(settings({"directory": "http://127.0.0.1:1", "user": "u", "password_file": str(tmp_path / "none")}), "vllm-x-0")
    start("p")
    with pytest.raises(ValueError, match="another engine has published vllm-p-0 in .*: set another engine_id"):
        join(settings({"directory": str(tmp_path / "agents")}), "vllm-p-0")
    directory, agent = join(settings({"directory": str(tmp_path / "agents")}), "vllm-x-0")
    directory.close()
    agent.close()
