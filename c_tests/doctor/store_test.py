# SPDX-License-Identifier: Apache-2.0
"""Stores that cannot be described, and the command line. Stores that can are described by unit.store and bindings.python."""

import os
import tempfile
import unittest

from doctor import main, run


class Stores(unittest.TestCase):
    def test_a_folder_without_a_store_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            status, output, messages = run("store", folder)
            self.assertEqual((status, output), (1, b""))
            self.assertIn("contains no store", messages)
            self.assertIn(folder, messages)
            self.assertNotIn("such as", messages)

    def test_stores_in_a_folder_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("group-0-rank-1", "group-0-rank-0"):
                os.mkdir(os.path.join(folder, name))
                open(os.path.join(folder, name, "store"), "w").close()
            os.mkdir(os.path.join(folder, "other"))
            status, output, messages = run("store", folder)
            self.assertEqual((status, output), (1, b""))
            self.assertIn("contains no store; folders in it do, such as group-0-rank-0, group-0-rank-1", messages)
            self.assertNotIn("other", messages.replace(folder, ""))

    def test_a_missing_folder_is_named(self):
        self.assertIn("there is no such folder", run("store", "no-such-folder")[2])

    def test_the_command_line_is_checked(self):
        self.assertEqual(run("store")[0], 2)
        self.assertEqual(run("store", "a", "b")[0], 2)
        status, output, _ = run("store", "--help")
        self.assertEqual(status, 0)
        self.assertIn(b"kvmem-doctor store FOLDER", output)


main()
