"""A group of the cgroup v1 memory controller, for servers with little memory.

test/bench/run makes it, as root, gives it to the user that the servers run as
and names it in the environment.  All that a server in it uses counts, its part
of the operating system's cache as well; what others have brought into that
cache does not, so files have to be evicted before the server starts.
"""

import os


def find():
    """The group that run has made, or None."""
    directory = os.environ.get("CB_GROUP")
    return Group(directory) if directory else None


class Group:
    """Empty between servers; one server at a time."""

    def __init__(self, directory):
        self.directory = directory

    def set(self, name, value):
        with open(os.path.join(self.directory, name), "w") as out:
            out.write(str(value))

    def limit(self, megabytes):
        """Forgets what an earlier server has left in the cache; sets the size."""
        self.set("memory.force_empty", 0)
        self.set("memory.swappiness", 0)
        self.set("memory.limit_in_bytes", megabytes * 2 ** 20)
        self.set("memory.max_usage_in_bytes", 0)

    def prefix(self):
        """Words before a command that let it, and what it starts, run here."""
        return ["sh", "-c", 'echo $$ >"$0" && exec "$@"',
                os.path.join(self.directory, "cgroup.procs")]

    def killed(self):
        """How many processes had to be killed for want of memory so far."""
        with open(os.path.join(self.directory, "memory.oom_control")) as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
