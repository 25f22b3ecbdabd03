import io
from itertools import count

import pytest

from coder_k8s.dev.progress import Progress
from tests.dev.terminal import Terminal


def test_a_step_is_a_line_with_its_duration() -> None:
    out, clock = io.StringIO(), iter(count(0, 1.5))
    progress = Progress(out, lambda: next(clock))
    with progress.step("cluster") as step:
        step.show("https://127.0.0.1")
    assert out.getvalue() == "+    1.5 s  cluster      https://127.0.0.1\n"
    assert progress.elapsed == 4.5


def test_a_failed_step_is_marked() -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(out, lambda: 0).step("cluster"):
        raise RuntimeError
    assert out.getvalue() == "x    0.0 s  cluster\n"


def test_a_verbose_step_prints_lines_without_a_terminal() -> None:
    out = io.StringIO()
    progress = Progress(out, lambda: 0)
    with progress.step("etcd", verbose=True):
        pass
    with progress.step("kubectl", verbose=True) as step:
        step.show("building kubectl")
        step.show("built kubectl in 9 s")
    assert out.getvalue().splitlines() == ["building kubectl", "built kubectl in 9 s"]


def test_a_terminal_shows_one_line_per_verbose_step() -> None:
    terminal = Terminal()
    progress = Progress(terminal, lambda: 0)
    with progress.step("etcd", verbose=True):
        pass
    with progress.step("kubectl", verbose=True) as step:
        step.show("building kubectl")
        step.show("built kubectl in 9 s")
    assert terminal.shown == ["+    0.0 s  kubectl      built kubectl in 9 s", ""]
