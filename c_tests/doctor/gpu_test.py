# SPDX-License-Identifier: Apache-2.0
"""GPUs of the stand-in driver: two, one, without virtual memory, with fabric handles, with failures, and none."""

import unittest

from doctor import SIM, STORAGE, Report, main

NO_NIXL = "--nixl=/does/not/exist"


def on_stand_in(*arguments, **environment):
    return Report(*arguments, LD_LIBRARY_PATH=SIM, **environment)


class TwoGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = on_stand_in(NO_NIXL, "--require=gpu,vmm,posix-fd,peers")

    def test_requirements(self):
        self.assertEqual(self.report.status, 0, self.report.all["requirements"])

    def test_the_driver(self):
        self.assertEqual(self.report.data("cuda.driver"), {"cuda_version": 13000, "gpus": 2})

    def test_each_gpu(self):
        for ordinal in range(2):
            device = self.report.data(f"gpu.{ordinal}.device")
            self.assertEqual(device["name"], "kvmem stand-in device")
            self.assertEqual(device["memory_bytes"], 8 << 30)
            self.assertEqual(device["compute_capability"], "9.0")
            self.assertEqual(device["multiprocessors"], 132)
            # "kvmem-sim-dev-0" and the ordinal.
            self.assertEqual(device["uuid"], f"GPU-6b766d65-6d2d-7369-6d2d-6465762d300{ordinal}")
            self.assertEqual(self.report.data(f"gpu.{ordinal}.peers"), {"can_access": [1 - ordinal]})
            # The attribute promises fabric handles, and the export fails.
            self.assertEqual(self.report.status_of(f"gpu.{ordinal}.fabric"), "missing")
            self.assertGreater(self.report.data(f"gpu.{ordinal}.rates")["from_host_bytes_per_second"], 0)

    def test_every_pair_of_tiers(self):
        tiers = ["system", "pinned0", "device0", "elastic0", "disk0"]
        pairs = {(a, b) for a in tiers for b in tiers}
        pairs -= {("disk0", "disk0"), ("pinned0", "pinned0"), ("elastic0", "elastic0")}
        pairs |= {("pinned1", "device1"), ("device1", "pinned1"), ("device0", "device1"), ("device1", "device0")}
        self.assertEqual(set(self.report.paths), pairs)
        failed = [each for each in self.report.paths.values() if each["status"] != "ok"]
        self.assertEqual(failed, [])

    def test_why_not_better(self):
        def reasons(source, destination):
            return {each["method"]: each["reason"] for each in self.report.paths[source, destination]["others"]}
        self.assertIn("page-locked", reasons("system", "device0")["cuda_kernel"])
        self.assertIn("GPUDirect Storage", reasons("disk0", "device0")["nixl"])


class Variants(unittest.TestCase):
    def test_one_gpu(self):
        report = on_stand_in(NO_NIXL, "--no-rates", "--require=gpu", KVMEM_SIM_DEVICES="1")
        self.assertEqual(report.status, 0)
        self.assertNotIn("gpu.0.peers", report.findings)
        self.assertEqual(report.all["paths"], [])

    def test_gpus_that_do_not_reach_each_other(self):
        report = on_stand_in(NO_NIXL, "--require=peers", KVMEM_SIM_PEER_ACCESS="0")
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("gpu.0.peers"), "missing")
        self.assertEqual(report.data("gpu.0.peers"), {"can_access": []})
        self.assertEqual(report.paths["device0", "device1"]["status"], "ok")

    def test_no_virtual_memory(self):
        report = on_stand_in(NO_NIXL, "--require=vmm", KVMEM_SIM_VMM="0", KVMEM_SIM_DEVICES="1")
        self.assertEqual(report.status, 1)
        for name in ("vmm", "posix_fd", "fabric"):
            self.assertEqual(report.status_of(f"gpu.0.{name}"), "missing")
        path = report.paths["system", "elastic0"]
        self.assertEqual(path["status"], "missing")
        self.assertIn("virtual memory", path["text"])
        self.assertEqual(report.paths["system", "device0"]["status"], "ok")

    def test_fabric_handles(self):
        report = on_stand_in(NO_NIXL, "--no-rates", "--require=fabric", KVMEM_SIM_FABRIC="1")
        self.assertEqual(report.status, 0)

    def test_no_visible_gpu(self):
        report = on_stand_in(NO_NIXL, "--no-rates", "--require=gpu", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("cuda.driver"), "missing")

    def test_a_gpu_without_memory(self):
        report = on_stand_in(NO_NIXL, KVMEM_SIM_DEVICES="1", KVMEM_SIM_MEMORY=str(4 << 20))
        self.assertEqual(report.status, 0)
        path = report.paths["pinned0", "device0"]
        self.assertEqual(path["status"], "missing")
        self.assertIn("free", path["text"])

    def test_a_lost_context(self):
        # CUDA_ERROR_CONTEXT_IS_DESTROYED
        report = on_stand_in(NO_NIXL, "--require=gpu", KVMEM_SIM_DEVICES="1",
                             KVMEM_SIM_FAIL="cuDevicePrimaryCtxRetain 709")
        self.assertEqual(report.status, 0)
        rates = report.finding("gpu.0.rates")
        self.assertEqual(rates["status"], "failed")
        self.assertIn("CUDA_ERROR_CONTEXT_IS_DESTROYED", rates["text"])
        self.assertNotEqual(report.paths["pinned0", "device0"]["status"], "ok")

    def test_properties_that_cannot_be_read(self):
        report = on_stand_in(NO_NIXL, "--require=gpu", KVMEM_SIM_DEVICES="1", KVMEM_SIM_FAIL="cuDeviceTotalMem_v2 999")
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("gpu.0.device"), "failed")


def on_storage(*arguments, **environment):
    """With stand-ins for cuFile and the CUDA runtime, too."""
    return Report("--require=gds", *arguments, LD_LIBRARY_PATH=f"{SIM}:{STORAGE}:{STORAGE}/12:{STORAGE}/13",
                  KVMEM_SIM_DEVICES="1", **environment)


class GpuDirectStorage(unittest.TestCase):
    def test_it_works(self):
        report = on_storage()
        self.assertEqual(report.status, 0, report.all["requirements"])
        self.assertEqual(report.paths["device0", "disk0"]["method"], "nixl")
        self.assertEqual(report.paths["disk0", "device0"]["method"], "nixl")

    def test_it_fails_without_host_memory(self):
        report = on_storage("--no-rates", KVMEM_SIM_CUFILE="absent")
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("files.0.gds"), "missing")

    def test_the_missing_library_is_named(self):
        report = on_stand_in("--no-rates", "--require=gds", KVMEM_SIM_DEVICES="1")
        self.assertEqual(report.status, 1)
        finding = report.finding("files.0.gds")
        self.assertEqual(finding["status"], "missing")
        self.assertRegex(finding["text"], r"libcu(file|dart)\.so")


main()
