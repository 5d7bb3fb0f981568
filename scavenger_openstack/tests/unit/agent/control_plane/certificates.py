# SPDX-License-Identifier: Apache-2.0

"""Certificates for tests of TLS, made by ``openssl``."""

from __future__ import annotations

import os
import pathlib
import shutil
import ssl
import subprocess

import testtools

PROXIES = ('http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY',
           'all_proxy', 'ALL_PROXY')
"""Variables that would lead a call elsewhere."""


def make(test: testtools.TestCase, directory: pathlib.Path,
         address: str = '127.0.0.1') -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate that has signed itself, and its key; skips the test where
    there is no ``openssl``."""
    if not shutil.which('openssl'):
        test.skipTest('needs openssl')
    pem, key = directory / f'{address}.pem', directory / f'{address}.key'
    subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
         'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out',
         pem, '-days', '1', '-subj', f'/CN={address}', '-addext',
         f'subjectAltName=IP:{address}'], check=True, capture_output=True,
        env={'PATH': os.environ['PATH']}, timeout=60)
    return pem, key


def context(pem: pathlib.Path, key: pathlib.Path) -> ssl.SSLContext:
    """What a server needs."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(pem, key)
    return found
