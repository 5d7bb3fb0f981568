# SPDX-License-Identifier: Apache-2.0

"""Proofs that a report, and its answer, are from one that has a host's token.

Other clients of a message broker may read and write what it carries, so the
token does not cross it.  Both ends have its hash, and that is the key of an
HMAC (RFC 2104, SHA-256).  That of an answer covers that of its report, which
covers a number that is used once: no answer fits another report.
"""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
import hmac
import secrets
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.types import printable

ANSWER, REFUSAL = 'answer', 'refusal'
"""What a conductor signs."""

MOST_LENGTH = 256
"""Of a host's name, and of what else a call has besides its report."""

_REPORT = 'report'
_PROOF = 'proof'


class Proof(NamedTuple):
    """What a call has besides the report: the name of the host, a number that
    is used once, and the proof."""

    host: str
    nonce: str
    proof: str


def key(token: str) -> str:
    """The hash of a token, which the database keeps.

    A token is random, so that no hash of it can be turned round by trying.
    """
    return 'sha256:' + hashlib.sha256(token.encode(
        errors='surrogateescape')).hexdigest()


def make(token: str, host: str, report: bytes) -> Proof:
    """Return what proves that a report is of the host with this token."""
    nonce = secrets.token_hex(16)
    return Proof(host, nonce, _proof(key(token), _REPORT, nonce, report))


def parse(fields: Mapping[str, object]) -> Proof:
    """The fields of a call.

    :raises ForeignReport: they are not those of a :class:`Proof`
    """
    texts = [text for name in Proof._fields if isinstance(
        text := fields.get(name), str) and len(text) <= MOST_LENGTH
        and text.isprintable()]
    if len(texts) != len(Proof._fields) or len(fields) > len(texts):
        raise errors.ForeignReport(
            'a report with a proof of another form: refused')
    return Proof(*texts)


def is_of(given: Proof, key: str, report: bytes) -> bool:
    """Whether a report is of one that has the key."""
    return _equal(given.proof, _proof(key, _REPORT, given.nonce, report))


def signed(key: str, given: Proof, kind: str, text: str) -> dict[str, str]:
    """An answer or a refusal with its proof, as it crosses the broker."""
    return {kind: text, _PROOF: _proof(key, kind, given.proof, text)}


def opened(token: str, given: Proof, message: object) -> str:
    """The answer in what :func:`signed` made.

    :raises WireError: it is a refusal
    :raises Unreachable: it is not of one that knows the token, or is of
        another report: nothing is known of this one
    """
    fields = message if isinstance(message, dict) else {}
    for kind in (ANSWER, REFUSAL):
        text = fields.get(kind)
        if isinstance(text, str) and _equal(
                fields.get(_PROOF),
                _proof(key(token), kind, given.proof, text)):
            if kind == REFUSAL:
                raise errors.WireError(printable(text))
            return text
    raise errors.Unreachable(
        'an answer without a proof that its sender knows the token of this '
        'host is not followed: another client of the broker may have sent '
        'it, or the conductor has no token of this host')


def _proof(key: str, *parts: str | bytes) -> str:
    digest = hmac.new(key.encode(), digestmod=hashlib.sha256)
    for part in parts:
        data = (part.encode(errors='surrogatepass') if isinstance(part, str)
                else part)
        digest.update(len(data).to_bytes(8, 'big') + data)
    return digest.hexdigest()


def _equal(given: object, expected: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(
        given.encode(errors='surrogatepass'), expected.encode())
