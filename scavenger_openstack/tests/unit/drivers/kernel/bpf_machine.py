# SPDX-License-Identifier: Apache-2.0

"""Executes BPF programs the way the kernel's manual describes it."""

from __future__ import annotations

import struct
import sys

from scavenger_openstack.drivers.kernel import bpf

MASK = (1 << 64) - 1
STACK_BYTES = 512
_RECORD, _STACK, _VALUES = 1 << 40, 1 << 50, 1 << 32
_SIZES = {bpf.Op.LOAD_WORD: 4, bpf.Op.LOAD: 8, bpf.Op.STORE_WORD: 4,
          bpf.Op.STORE: 8, bpf.Op.ATOMIC_ADD: 8}


class Table(dict[bytes, bytearray]):
    """A map; an array has all its entries."""

    def __init__(self, key_bytes: int, value_bytes: int, entries: int,
                 array: bool = False) -> None:
        super().__init__()
        self.key_bytes, self.value_bytes = key_bytes, value_bytes
        self.entries = entries
        if array:
            self.update({struct.pack('=I', index): bytearray(value_bytes)
                         for index in range(entries)})


class Machine:
    """Maps by descriptor, and what its helpers answer."""

    def __init__(self, tables: dict[int, Table]) -> None:
        self.tables = tables
        self.now_ns = 0
        self.process = 0
        self.cgroup = 0
        self.cpu = 0

    def run(self, code: bytes, record: bytes) -> None:
        self._where = {_RECORD: bytearray(record),
                       _STACK - STACK_BYTES: bytearray(STACK_BYTES)}
        registers = [0] * 11
        registers[1], registers[10] = _RECORD, _STACK
        pc = 0
        while True:
            op, pair, offset, immediate = struct.unpack_from('=BBhi', code,
                                                             pc * 8)
            dst, src = pair & 15, pair >> 4
            pc += 1
            if op == bpf.Op.EXIT:
                assert registers[0] == 0
                return
            if op == bpf.Op.CALL:
                registers[0] = self._call(immediate, registers) & MASK
                registers[1:6] = [1 << 63] * 5   # not to be used any more
            elif op == bpf.Op.LOAD_64_BITS:
                registers[dst] = immediate
                if src == bpf.MAP_VALUE:    # of an array with one value
                    value, = self.tables[immediate].values()
                    registers[dst] = self._shown(value)
                pc += 1
            elif op in (bpf.Op.LOAD, bpf.Op.LOAD_WORD):
                registers[dst] = self._load(registers[src] + offset,
                                            _SIZES[bpf.Op(op)])
            elif op in (bpf.Op.STORE, bpf.Op.STORE_WORD):
                self._store(registers[dst] + offset, registers[src],
                            _SIZES[bpf.Op(op)])
            elif op == bpf.Op.ATOMIC_ADD:
                at = registers[dst] + offset
                self._store(at, self._load(at, 8) + registers[src], 8)
            elif op & 7 == 5:
                other = registers[src] if op & 8 else immediate & MASK
                if self._jumps(bpf.Op(op), registers[dst], other):
                    pc += offset
            else:
                other = registers[src] if op & 8 else immediate & MASK
                registers[dst] = self._calculated(
                    bpf.Op(op), registers[dst], other) & MASK

    @staticmethod
    def _jumps(op: bpf.Op, left: int, right: int) -> bool:
        return {bpf.Op.JUMP: True,
                bpf.Op.JUMP_IF_EQUAL: left == right,
                bpf.Op.JUMP_IF_REGISTERS_EQUAL: left == right,
                bpf.Op.JUMP_IF_NOT_EQUAL: left != right,
                bpf.Op.JUMP_IF_REGISTERS_DIFFER: left != right,
                bpf.Op.JUMP_IF_NOT_LESS: left >= right,
                bpf.Op.JUMP_IF_REGISTER_NOT_LESS: left >= right}[op]

    @staticmethod
    def _calculated(op: bpf.Op, left: int, right: int) -> int:
        return {bpf.Op.ADD: left + right, bpf.Op.ADD_REGISTER: left + right,
                bpf.Op.SUBTRACT_REGISTER: left - right,
                bpf.Op.AND: left & right, bpf.Op.MOVE: right,
                bpf.Op.MOVE_REGISTER: right,
                bpf.Op.SHIFT_LEFT: left << (right & 63),
                bpf.Op.SHIFT_RIGHT: left >> (right & 63)}[op]

    def _call(self, helper: int, registers: list[int]) -> int:
        if helper == bpf.Helper.KTIME_NS:
            return self.now_ns
        if helper == bpf.Helper.PROCESS_AND_THREAD:
            return self.process << 32 | self.process + 1
        if helper == bpf.Helper.CGROUP_ID:
            return self.cgroup
        if helper == bpf.Helper.CPU:
            return self.cpu
        table = self.tables[registers[1]]
        data, begin = self._at(registers[2], table.key_bytes)
        key = bytes(data[begin:begin + table.key_bytes])
        if helper == bpf.Helper.MAP_LOOKUP:
            if key not in table:
                return 0
            return self._shown(table[key])
        if helper == bpf.Helper.MAP_DELETE:
            return 0 if table.pop(key, None) is not None else -2
        assert helper == bpf.Helper.MAP_UPDATE
        if key in table and registers[4] == bpf.NO_EXIST:
            return -17
        if key not in table and len(table) >= table.entries:
            return -7
        data, begin = self._at(registers[3], table.value_bytes)
        table[key] = bytearray(data[begin:begin + table.value_bytes])
        return 0

    def _shown(self, value: bytearray) -> int:
        """Where a program reaches a value."""
        where = _VALUES + (len(self._where) << 20)
        self._where[where] = value
        return where

    def _at(self, address: int, size: int) -> tuple[bytearray, int]:
        base = max((base for base in self._where if base <= address),
                   default=0)
        offset = address - base
        if (not 0 <= offset <= len(self._where.get(base, b'')) - size
                or offset % (4 if size % 8 else 8)):
            raise AssertionError(f'access outside: {address:#x}')
        return self._where[base], offset

    def _load(self, address: int, size: int) -> int:
        data, begin = self._at(address, size)
        return int.from_bytes(data[begin:begin + size], sys.byteorder)

    def _store(self, address: int, value: int, size: int) -> None:
        data, begin = self._at(address, size)
        data[begin:begin + size] = (value & (1 << 8 * size) - 1).to_bytes(
            size, sys.byteorder)
