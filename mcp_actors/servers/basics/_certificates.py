"""Share the TLS settings that trust the certificates of this machine.

Reading them takes 30 ms of a core and 0.8 MiB of memory, in thousands of pieces. Done at each connect, in any of Trio's
worker threads, it leaves holes in the memory arenas of all those threads: a group that often reconnects to HTTP servers
grows for as long as it runs. So the connections of a group share one context.
"""

from __future__ import annotations

import os
import ssl
import threading
from typing import TYPE_CHECKING, Final

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables of the environment that name other certificates than those of this machine."""

BUNDLES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""The files that httpx2 looks for if OpenSSL was built for another system, as that of a Python from elsewhere is."""


class Certificates:
    """The certificates of this machine, read once for all connections of a group."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._found: object = None

    def context(self) -> ssl.SSLContext:
        """Return TLS settings that trust these certificates; read them again if they have changed. Blocks on files.

        Any thread may call it.
        """
        with self._reading:
            named = [os.environ.get(name, "") for name in VARIABLES]
            files = [*_files(*named)]
            found = (named, files)
            # Without a file to look at, a change would go unnoticed.
            if self._context is None or found != self._found or not files:
                self._context, self._found = httpx2.create_ssl_context(), found
            return self._context


def _files(file: str, folders: str) -> Iterator[object]:
    """Yield what changes with the certificates: the identity and age of each file or folder that may hold them.

    Args:
        file: the value of the first variable.
        folders: the value of the second one, which may list several.
    """
    paths = ssl.get_default_verify_paths()
    for path in (file, *folders.split(os.pathsep), paths.openssl_cafile, paths.openssl_capath, *BUNDLES):
        if path:
            try:
                status = os.stat(path)
            except OSError:
                continue
            yield path, status.st_ino, status.st_size, status.st_mtime_ns
