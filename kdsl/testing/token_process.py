"""An identity provider that outlives the command that started a local Kafka.

Run as a program: ``python -m kdsl.testing.token_process MARK``. Its input is JSON on standard input, so that no
secret appears on a command line. It prints a line when it is ready, and serves until it is killed.
"""

from __future__ import annotations

import json
import sys
import threading

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kdsl.testing.tokens import TokenService


def main() -> None:
    """Serve OAuth tokens until the process is killed; standard input is JSON: users, key, port and life.

    It writes a line to standard output when it serves.

    Raises:
        OSError: The port is in use.
    """
    arguments = json.loads(sys.stdin.read())
    key = load_pem_private_key(arguments["key"].encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    TokenService(arguments["users"], arguments["life"], port=arguments["port"], key=key).start()
    sys.stdout.write("serves\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
