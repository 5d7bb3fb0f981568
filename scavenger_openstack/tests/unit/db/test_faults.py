# SPDX-License-Identifier: Apache-2.0

"""Which errors of a database prove that a value is wrong: by all numbers that
the drivers have."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg2
from psycopg2 import errorcodes
import psycopg2.errors
import pymysql
from pymysql.constants import CR
from pymysql.constants import ER
from sqlalchemy import exc
from sqlalchemy import make_url
import testtools

from scavenger_openstack.db import faults
from scavenger_openstack import errors

URL = make_url('mysql+pymysql://u:secret@h/d')

NEWER = {'UNKNOWN_COM_ERROR': 1047, 'USER_LIMIT_REACHED': 1226,
         'TOO_MANY_USER_CONNECTIONS': 1203, 'HOST_IS_BLOCKED': 1129,
         'QUERY_INTERRUPTED': 1317, 'ERROR_DURING_COMMIT': 1180,
         'READ_ONLY_TRANSACTION': 1792, 'READ_ONLY_MODE': 1836,
         'STATEMENT_TIMEOUT': 1969, 'GROUP_REPLICATION': 3101,
         'IDLE': 4031, 'PROXY': 9001}
"""Not all of these are constants of the driver."""


def wrapped(original: Exception, base: Any) -> exc.DBAPIError:
    error = exc.DBAPIError.instance('', (), original, base)
    assert isinstance(error, exc.DBAPIError)
    return error


def of_mysql(number: int) -> exc.DBAPIError:
    """As the driver raises it."""
    packet = b'\xff' + number.to_bytes(2, 'little') + b'#HY000text'
    try:
        pymysql.err.raise_mysql_exception(packet)
    except pymysql.err.MySQLError as error:
        return wrapped(error, pymysql.err.Error)
    raise AssertionError


def of_postgresql(code: str) -> exc.DBAPIError:
    error = psycopg2.errors.lookup(code)('text')
    error.__setstate__({'pgcode': code})
    return wrapped(error, psycopg2.Error)


def translated(error: exc.DBAPIError) -> Exception:
    try:
        with faults.translated(URL):
            raise error
    except Exception as found:
        return found


class Faults(testtools.TestCase):

    def test_each_number_of_mysql(self) -> None:
        numbers = {value for module in (ER, CR) for value in vars(
            module).values() if isinstance(value, int)}
        numbers |= {1690, 3140, 3819, *NEWER.values()}
        refused = set()
        for number in numbers:
            error = of_mysql(number)
            found = translated(error)
            if found is error:
                refused.add(number)
                self.assertFalse(faults.passes(error), number)
            else:
                self.assertIsInstance(found, errors.DatabaseError,
                                      str(number))
                self.assertNotIn('secret', str(found))
        self.assertEqual(set(), refused & set(NEWER.values()))
        for number in (1048, 1062, 1264, 1366, 1406, 1452, 1690):
            self.assertIn(number, refused)
        self.assertLess(len(refused), 40)

    def test_each_code_of_postgresql(self) -> None:
        codes = {value for name, value in vars(errorcodes).items()
                 if name.isupper() and not name.startswith('CLASS_')
                 and isinstance(value, str) and len(value) == 5}
        for code in codes:
            try:
                error = of_postgresql(code)
            except KeyError:        # of a newer server than the driver
                continue
            found = translated(error)
            if code[:2] in ('22', '23', '54'):
                self.assertIs(error, found, code)
                self.assertFalse(faults.passes(error), code)
            else:
                self.assertIsInstance(found, errors.DatabaseError, code)

    def test_what_passes(self) -> None:
        for number in (1047, 1203, 1226, 1290, 1317, 1792, 1836, 1213):
            self.assertTrue(faults.passes(of_mysql(number)), number)
        for code in ('25006', '40001', '53300', '57P01', '57P03', '08006'):
            self.assertTrue(faults.passes(of_postgresql(code)), code)
        for number in (1021, 1045, 1129, 1146, 1969):
            self.assertFalse(faults.passes(of_mysql(number)), number)
        for code in ('42501', '42P01', '53100', '57014'):
            self.assertFalse(faults.passes(of_postgresql(code)), code)

    def test_what_a_database_says_is_one_printable_line(self) -> None:
        """It repeats values that a tenant chose."""
        error = sqlite3.OperationalError('near "a\x1b[31m\u2028b": no\nsuch')
        text = str(translated(wrapped(error, sqlite3.Error)))
        self.assertTrue(text.isprintable(), text)
        self.assertIn(r'a\x1b[31m', text)

    def test_tables_of_another_version(self) -> None:
        for error in (of_mysql(1146), of_mysql(1054),
                      of_postgresql('42P01'), of_postgresql('42703')):
            self.assertIsInstance(translated(error), errors.SchemaError)

    def test_a_driver_without_a_number(self) -> None:
        """Of a connection that is closed, or that lost its order."""
        for original, base in (
                (pymysql.err.InterfaceError(0, ''), pymysql.err.Error),
                (pymysql.err.InternalError('Packet sequence number wrong'),
                 pymysql.err.Error),
                (psycopg2.InterfaceError('connection already closed'),
                 psycopg2.Error),
                (psycopg2.OperationalError('FATAL: no'), psycopg2.Error),
                (sqlite3.OperationalError('no'), sqlite3.Error)):
            self.assertIsInstance(translated(wrapped(original, base)),
                                  errors.DatabaseError, repr(original))
