# SPDX-License-Identifier: Apache-2.0
"""An S3-compatible server on loopback, with its objects in memory: s3_server.py PORT

PORT 0 chooses one. Prints "ready" and the port, then replies to each line. It ends with its input.

    list       the key and the size of each object
    head KEY   the first 64 bytes of an object
    cut KEY    makes an object one byte shorter
    drop KEY   deletes an object
    deny       refuses the access keys of all requests from here on
    allow      accepts them again
"""

import logging
import sys

import boto3
from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

BUCKET = "blocks"


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1",
                          aws_access_key_id="key", aws_secret_access_key="secret")
    client.create_bucket(Bucket=BUCKET)
    print(f"ready {port}", flush=True)
    for line in sys.stdin:
        command, *keys = line.split()
        if command == "list":
            found = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
            print(" ".join(f"{one['Key']}:{one['Size']}" for one in found), flush=True)
        elif command == "cut":
            body = client.get_object(Bucket=BUCKET, Key=keys[0])["Body"].read()
            client.put_object(Bucket=BUCKET, Key=keys[0], Body=body[:-1])
            print(len(body) - 1, flush=True)
        elif command == "drop":
            client.delete_object(Bucket=BUCKET, Key=keys[0])
            print("dropped", flush=True)
        elif command in ("deny", "allow"):
            settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if command == "deny" else float("inf")
            ActionAuthenticatorMixin.request_count = 0
            print(command, flush=True)
        else:
            body = client.get_object(Bucket=BUCKET, Key=keys[0])["Body"].read()
            print(body[:64].hex(), flush=True)


main()
