# SPDX-License-Identifier: MIT
"""Drives `mtx run` and `mtx repl` through a pseudo-terminal and looks at the screen as a person does: a small
terminal (cursor, wrapping, the few escape sequences the programs use) keeps the rows, and tests compare rows."""
import fcntl, json, os, pty, re, select, shutil, struct, sys, tempfile, termios, time, traceback, unicodedata

MTX = os.environ.get("BUILD", "build") + "/mtx"
MODEL = os.environ.get("MTX_MODELS_DIR", "models") + "/SmolLM2-135M-Instruct.Q4_1.gguf"
WAIT_S = 60
COLUMNS = 40


class Screen:
    """Rows of text, the cursor, and whether a full row waits for its next character."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.col, self.pasting = columns, [""], 0, 0, False

    def put(self, char):
        width = 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if self.col + width > self.columns:
            self.newline()
        if width:
            line = self.rows[self.row].ljust(self.col)
            self.rows[self.row] = line[: self.col] + char + "\0" * (width - 1) + line[self.col + width :]
            self.col += width

    def newline(self):
        self.row, self.col = self.row + 1, 0
        while len(self.rows) <= self.row:
            self.rows.append("")

    def escape(self, count, letter):
        n = int(count or "1")
        if letter == "A":
            self.row = max(0, self.row - n)
        elif letter == "C":
            self.col = min(self.columns - 1, self.col + n)
        elif letter == "K":
            self.rows[self.row] = self.rows[self.row][: self.col]
        elif letter == "J":
            del self.rows[self.row + 1 :]
            self.rows[self.row] = self.rows[self.row][: self.col]
        else:
            assert letter == "m", "unknown sequence ending in " + letter

    def feed(self, text):
        for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[^\x1b]", text):
            if part in ("\x1b[?2004h", "\x1b[?2004l"):
                self.pasting = part.endswith("h")
            elif part[0] == "\x1b":
                self.escape(part[2:-1].split(";")[0], part[-1])
            elif part == "\r":
                self.col = 0
            elif part == "\n":
                column = self.col
                self.newline()
                self.col = column
            else:
                self.put(part)

    def text(self):
        return "\n".join(line.replace("\0", "").rstrip() for line in self.rows)


class Terminal:
    def __init__(self, *argv, home):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(HOME=home, TERM="xterm")
            os.environ.pop("XDG_STATE_HOME", None)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))  # before the program can ask
            os.execv(MTX, [MTX, *argv])
        self.screen, self.bytes = Screen(COLUMNS), b""

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.bytes += data
        whole = self.bytes.decode("utf-8", "ignore")
        cut = re.search(r"\x1b[^A-Za-z]*$", whole)
        whole = whole[: cut.start()] if cut else whole
        self.bytes = self.bytes[len(whole.encode()) :]
        self.screen.feed(whole)
        return True

    def until(self, seen):
        """Reads until seen(screen); what the screen shows then."""
        end = time.monotonic() + WAIT_S
        while not seen(self.screen):
            assert time.monotonic() < end, "not seen; the screen:\n" + self.screen.text()
            assert self.read(0.5), "the program has ended; the screen:\n" + self.screen.text()
        return self.screen.text()

    def prompt(self, mark="> "):
        """Until the cursor waits behind an empty prompt."""
        return self.until(lambda s: s.pasting and s.rows[s.row].rstrip() == mark.rstrip() and s.col == len(mark))

    def send(self, text):
        os.write(self.fd, text.encode())

    def enter(self, text, mark="> "):
        """Types a line; what the screen then shows below it."""
        first = self.screen.row
        self.send(text + "\r")
        self.until(lambda s: s.row > first)
        self.prompt(mark)
        return "\n".join(self.screen.text().split("\n")[first:])

    def end(self):
        while self.read(WAIT_S):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat(home):
    t = Terminal("run", MODEL, "--temp", "0", "-n", "12", home=home)
    assert "Ctrl-D leaves" in t.prompt()
    answer = t.enter("Say hello").split("\n")
    assert answer[0] == "> Say hello" and len(answer[1]) > 3, answer
    assert "temperature 0.2" in t.enter("/set temperature 0.2")
    assert "top_k 40" in t.enter("/show")
    assert "temperature 0" in t.enter("/set temp 0")
    assert "system message set" in t.enter("/system Be brief")
    t.enter("one\\", "... ")
    t.enter("two")
    t.enter('"""three', "... ")
    t.enter('four"""')
    path = home + "/talk.json"
    assert "saved 6 messages" in t.enter("/save " + path)
    with open(path) as f:
        saved = json.load(f)
    assert saved["system"] == "Be brief"
    assert [m["content"] for m in saved["messages"] if m["role"] == "user"] == ["Say hello", "one\ntwo", "three\nfour"]
    assert "forgotten" in t.enter("/clear")
    assert "loaded 6 messages" in t.enter("/load " + path)
    assert "no command /nonsense" in t.enter("/nonsense")
    t.send("/cl\t")
    t.until(lambda s: s.rows[s.row] == "> /clear")
    t.send("\x03")
    t.prompt()
    t.send("\x1b[A\x1b[A")
    t.until(lambda s: s.rows[s.row] == "> /load " + path or s.row and "".join(s.rows[s.row - 2 : s.row + 1]).endswith("talk.json"))
    t.send("\x15")
    t.prompt()
    t.send("\x04")
    assert t.end() == 0
    with open(home + "/.mtx_history") as f:
        assert "Say hello\n" in f.read()


def test_ctrl_c_stops_the_answer_alone(home):
    t = Terminal("run", MODEL, "--temp", "0", "-n", "4000", "--logit-bias", "2=-inf", home=home)
    t.prompt()
    t.send("Tell me of rivers\r")
    t.until(lambda s: "rivers\n" in s.text() and len(s.text().split("rivers\n", 1)[1]) > 60)
    t.send("\x03")
    said = t.prompt().split("rivers\n", 1)[1]
    assert len(said) < 4000, "it went on for %d characters" % len(said)
    assert "saved 2 messages" in t.enter("/save " + home + "/cut.json")
    t.send("\x04")
    assert t.end() == 0


def test_a_full_context_says_what_helps(home):
    t = Terminal("run", MODEL, "--temp", "0", "-n", "30", "-c", "64", home=home)
    t.prompt()
    t.enter("Tell me of rivers")
    said = t.enter("And now of seas").replace("\n", "")
    assert "the context is 64 tokens" in said and "/clear forgets the conversation" in said, said
    t.enter("/clear")
    assert "mtx:" not in t.enter("Tell me of seas")
    t.send("\x04")
    assert t.end() == 0


def test_long_lines_take_rows(home):
    t = Terminal("repl", home=home)
    t.prompt("mtx> ")
    typed = "x = '" + "0123456789" * 7 + "'"
    for char in typed:
        t.send(char)
    rows = ["mtx> " + typed[:35], typed[35:75], typed[75:]]
    t.until(lambda s: s.rows[s.row] == rows[-1])
    first = t.screen.row - 2
    assert t.screen.rows[first:] == rows, t.screen.rows
    t.send("\x01\x06\x06" + "y")  # start, two characters on, a letter
    t.until(lambda s: s.row == first and s.rows[first].startswith("mtx> x y="))
    assert t.screen.col == 8 and t.screen.rows[first + 2] == ("x y" + typed[2:])[75:], t.screen.rows
    t.send("\x7f\x05\r")
    t.prompt("mtx> ")
    assert "\n70" in t.enter("#x", "mtx> ")
    t.send("日本語日本語日本語日本語日本語日本語")  # two columns each; none is cut at the border
    t.until(lambda s: s.rows[s.row].replace("\0", "") == "語")
    assert (t.screen.row, t.screen.col) == (len(t.screen.rows) - 1, 2), t.screen.rows
    assert t.screen.rows[t.screen.row - 1].replace("\0", "") == "mtx> 日本語日本語日本語日本語日本語日本"
    t.send("\x15")
    t.prompt("mtx> ")
    t.send("\x04")
    assert t.end() == 0


def test_a_pasted_text_is_one_input(home):
    t = Terminal("repl", home=home)
    t.prompt("mtx> ")
    t.send("\x1b[200~for i = 1, 2 do\rprint(i * 11)\r\nend\x1b[201~")
    t.until(lambda s: s.rows[s.row] == "end")
    assert t.screen.rows[-3:] == ["mtx> for i = 1, 2 do", "print(i * 11)", "end"], t.screen.rows
    t.send("\r")
    assert t.prompt("mtx> ").split("\n")[-3:] == ["11", "22", "mtx>"]
    t.send("mtx.st\t")
    t.until(lambda s: s.rows[s.row] == "mtx> mtx.start_load")
    t.send("\x15mtx.s\t")
    t.until(lambda s: s.rows[s.row] == "mtx> mtx.s" and "mtx.sampler  mtx.start_load" in s.text())
    t.send("\x15\x04")
    assert t.end() == 0


passed = failed = 0
for name, test in list(globals().items()):
    if not name.startswith("test_"):
        continue
    folder = tempfile.mkdtemp()
    try:
        test(folder)
        passed += 1
    except Exception:
        failed += 1
        print(name + ":")
        traceback.print_exc(file=sys.stdout)
    finally:
        shutil.rmtree(folder)
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
