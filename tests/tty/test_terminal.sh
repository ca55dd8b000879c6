#!/bin/sh
# SPDX-License-Identifier: MIT
# The chat and the Lua prompt on a terminal.
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/tty/terminal.py
