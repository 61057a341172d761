"""What one rank tells on behalf of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.hook.attach import attach


@pytest.mark.parametrize(("own", "rank", "speaks"), [
    ("mine", "0", True), ("mine", "1", False), ("run", "0", False), ("run/below", "0", False),
])  # fmt: skip
def test_a_script_that_names_another_folder_than_the_command_around_it_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own: str,
    rank: str,
    speaks: bool,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("DSPROF_OUT", str(tmp_path / "run"))
    monkeypatch.setenv("DSPROF_LAUNCH", "one")
    monkeypatch.setenv("RANK", rank)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with attach(net, optimizer=optimizer, out=tmp_path / own):
        pass
    said = capsys.readouterr().err.splitlines()
    assert len(said) == speaks
    assert all(f"into {tmp_path / 'run'}: the script names another folder" in one for one in said)
    assert len(list((tmp_path / own).glob("*.dsprof"))) == 1
