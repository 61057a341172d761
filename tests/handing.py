"""`python -IS handing.py SOCKET ARGUMENTS...` stands for `dsprof` in a script of a shell: it hands
its streams to who forks that (`tests.commands.shell`), and ends as that does.
"""

import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    socket.send_fds(asked, ["\0".join(sys.argv[2:]).encode()], [0, 1, 2])
    sys.exit(asked.recv(1)[0])
