# SPDX-License-Identifier: Apache-2.0
"""Stores that cannot be described, and the command line. Stores that can are described by unit.store and bindings.python."""

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

    def test_the_command_line_is_checked(self):
        self.assertEqual(run("store")[0], 2)
        self.assertEqual(run("store", "a", "b")[0], 2)
        status, output, _ = run("store", "--help")
        self.assertEqual(status, 0)
        self.assertIn(b"kvmem-doctor store FOLDER", output)


main()
