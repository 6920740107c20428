# SPDX-License-Identifier: Apache-2.0
"""Runs a program beside an S3-compatible server: with_object_store.py SERVER PROGRAM [ARGUMENT...]

SERVER is s3_server.py of the tests. In the arguments, ENDPOINT stands for the address of the server. The program finds access
keys in its environment.
"""

import os
import subprocess
import sys


def main():
    server, *command = sys.argv[1:]
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, server, "0"], stdin=pipe, stdout=pipe, text=True) as running:
        ready = next((line for line in running.stdout if line.startswith("ready ")), None)
        if ready is None:
            sys.exit(f"{server} ended with status {running.wait()} before it was ready")
        endpoint = f"http://127.0.0.1:{ready.split()[1]}"
        command = [endpoint if argument == "ENDPOINT" else argument for argument in command]
        outcome = subprocess.run(command, env={**os.environ, **keys}, check=False)
        running.stdin.close()
    return outcome.returncode


sys.exit(main())
