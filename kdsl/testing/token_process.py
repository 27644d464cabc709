"""An identity provider that outlives the command that started a local Kafka.

Run as a program: ``python -m kdsl.testing.token_process MARK``. What it serves comes in as JSON on standard input, so
that the key and the secrets stand on no command line; it says a line when it serves, and serves until it is ended.
"""

from __future__ import annotations

import json
import sys
import threading

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kdsl.testing.tokens import TokenService


def main() -> None:
    """Serve what standard input says."""
    arguments = json.loads(sys.stdin.read())
    key = load_pem_private_key(arguments["key"].encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    TokenService(arguments["users"], arguments["life"], port=arguments["port"], key=key).start()
    sys.stdout.write("serves\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
