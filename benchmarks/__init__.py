"""What dsprof costs, and whether it is right.

    bench       speed and exactness of reading, on generated logs with known truth (`generate`)
    corpus      real logs, compared with their known truth
    truth       verdicts about real jobs with planted faults
    overhead    what recording adds to a step, beside other tools; `cold`: without their noise
    exposed     whether the recorded share of communication is true
    recording   what the file format costs to write, read and follow
    live, page  what watching a job costs, and a page of a large run
    on_gpu      what only a machine with a GPU can show

Each runs as `python -m benchmarks.NAME`. The other modules are parts of these.
"""
