from __future__ import annotations

from tests.loaded import run_of_text


def test_what_callbacks_tell_is_of_the_batch_above() -> None:
    text = "".join(
        f"0: [epoch={epoch}][batch={batch}/40]:\n"
        f"0: \t Train loss/train/total: {3 - epoch:.4f}\n"
        "0: \t Train throughput/samples_per_sec: 16.0000\n"
        for epoch in (1, 2)
        for batch in (20, 40)
    )
    steps = run_of_text(text).steps
    assert steps["step"].tolist() == [20, 40, 60, 80]
    assert steps["loss"].tolist() == [2.0, 2.0, 1.0, 1.0]
    assert steps["samples_per_second"].tolist() == [16.0] * 4


def test_what_launchers_made_after_composers_say_does_not_make_a_job_one_of_composer() -> None:
    line = "ERROR:{}:Global rank 3 (PID 6138) exited with code 1\n"
    run = run_of_text(line.format("__main__"))
    assert run.problems["kind"].to_list() == ["exit"]
    assert run.meta.get("framework") is None


def test_a_batch_of_composer_takes_as_long_as_its_samples_do_at_the_rate_it_states() -> None:
    text = "".join(
        f"[batch={batch}/4000]:\n"
        f"\t Train time/sample: {256 * (batch - 1)}\n"
        "\t Train memory/current_allocated_mem: 9.5000\n"
        "\t Train memory/peak_reserved_mem: 51.5000\n"
        "\t Train throughput/samples_per_sec: 32.0000\n"
        for batch in range(101, 131)
    )
    run = run_of_text(text)
    assert run.steps["seconds"].tolist() == [8.0] * 30
    peaks = run.events.query("name == 'max_reserved'")["bytes"]
    assert peaks.unique().tolist() == [51.5e9]


def test_a_rate_of_batches_tells_how_long_a_step_takes() -> None:
    text = "[batch=12/4800]:\n\t Train loss/train/total: 9.5\n"
    text += "\t Train throughput/batches_per_sec: 0.25\n"
    found = run_of_text(text).findings[0]
    assert "It states 0.25 steps/s" in found.summary
    assert "by that a step takes about 4.00 s, but none is timed alone" in found.summary
    assert "Nor does" not in found.summary
