"""Rows of one kind with all of their fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsprof.recording import RowKind, Writer, read_rows, stream
from dsprof.recording.layout import ROW
from tests.recording.recorded import MS, events, frame, header, record


def test_all_fields_of_a_kind_can_be_had(tmp_path: Path) -> None:
    record(tmp_path, 2)
    calls = frame(read_rows(RowKind.COLLECTIVE, tmp_path))
    assert list(calls["seq"]) == [2, 2, 4, 4]
    assert list(calls["path"].unique()) == ["backward/all_reduce"]
    assert list(calls["group"].unique()) == ["world ranks 0-1"]
    assert list(calls["wait"] - calls["begin"]) == [8 * MS] * 4
    assert list(calls["blocked"]) == pytest.approx([0.01] * 4)
    assert calls["duration"].isna().all()
    spans = frame(read_rows(RowKind.SPAN, tmp_path))
    assert set(spans["micro"]) == {-1, 0, 1}
    steps = frame(read_rows(RowKind.STEP, tmp_path))
    assert steps["wait"].dtype == np.float32  # the class, not the moment


def test_rows_say_of_each_line_what_its_event_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PORTION", 4 * ROW)
    for restart in (0, 1):
        for rank in (0, 1):
            record(tmp_path, 2, rank, restart=restart)
    found = events(tmp_path)
    spans = frame(read_rows(RowKind.SPAN, tmp_path))
    key = ["segment", "rank", "line"]
    both = spans.merge(found[found["kind"] == "phase"], on=key, suffixes=("", "_told"))
    assert len(both) == len(spans) == 4 * 2 * 6
    assert set(zip(both["segment"], both["rank"], strict=True)) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert both["name"].tolist() == both["name_told"].tolist()
    assert both["duration"].tolist() == pytest.approx(both["seconds"].tolist())
    assert (pd.to_datetime(both["begin"] // 1000, unit="us") == both["at"]).all()


def test_what_is_unknown_is_null_and_what_took_no_time_is_0(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for blocked in (-1, 0):
        writer.collective(writer.name("barrier"), 0, 10, 20, blocked, 1)
    writer.close()
    calls = frame(read_rows(RowKind.COLLECTIVE, tmp_path))
    assert calls["blocked"].isna().tolist() == [True, False]
    assert calls["blocked"][1] == 0
    assert calls["group"].isna().all()


def test_of_a_folder_without_recordings_there_are_no_rows(tmp_path: Path) -> None:
    assert len(read_rows(RowKind.SPAN, tmp_path)) == 0
