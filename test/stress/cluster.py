"""Private clusters for the stress tests: create, start, crash, restart, copy."""

import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import psycopg2

# lines of a server log that mean a bug, whatever the test saw; that data "might be
# corrupted" the server says of itself, if it was ended during recovery
BAD_LOG = re.compile(r"TRAP:|PANIC:|inconsistent page|terminated by signal (?!9\b|3\b)"
                     r"|contains unexpected|(?<!might be )corrupted|invalid memory alloc"
                     r"|cache_batch: .*not published|buffer refcount leak|could not read block")

# A crash just after a transaction was rolled back that had made an unlogged relation,
# of any access method: if its abort record is lost, recovery makes the init fork again,
# and stumbles over the empty file that awaits its removal.  The next start removes it.
LEFT_BEHIND = re.compile(r'FATAL:  could not create file "[^"]+": File exists')


def drop_root(script):
    """The server refuses to run as root: run this script as postgres then."""
    if os.geteuid() != 0:
        return
    pwd.getpwnam("postgres")
    os.chdir("/tmp")
    os.execvp("runuser", ["runuser", "-u", "postgres", "--", sys.executable,
                          os.path.abspath(script)] + sys.argv[1:])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """One server with its own data directory and socket in a work directory."""

    def __init__(self, bindir, workdir, name, port):
        self.bindir = bindir
        self.name = name
        self.port = port
        self.workdir = workdir
        self.data = os.path.join(workdir, name)
        self.log = os.path.join(workdir, name + ".log")

    def run(self, tool, *args, check=True):
        cmd = [os.path.join(self.bindir, tool)] + list(args)
        out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, text=True)
        if check and out.returncode != 0:
            raise RuntimeError("%s failed:\n%s\n%s" % (" ".join(cmd), out.stdout,
                                                      self.log_tail()))
        return out

    def init(self, settings, *options):
        self.run("initdb", "-D", self.data, "-A", "trust", "-N", "-U", "postgres",
                 "--no-locale", "-E", "UTF8", *options)
        self.configure(settings)

    def configure(self, settings):
        settings = dict(settings, port=self.port,
                        unix_socket_directories="'%s'" % self.workdir,
                        listen_addresses="''")
        with open(os.path.join(self.data, "postgresql.conf"), "a") as conf:
            for key, value in settings.items():
                conf.write("%s = %s\n" % (key, value))

    def start(self):
        # the server must not hold our output open
        args = ("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "300", "start")
        if self.run(*args, check=False).returncode != 0:
            if not LEFT_BEHIND.search(self.log_tail()):
                raise RuntimeError("the server does not start:\n" + self.log_tail())
            self.run(*args)

    def stop(self, mode="fast", check=False):
        self.run("pg_ctl", "-D", self.data, "-w", "-t", "120", "-m", mode, "stop",
                 check=check)

    def running(self):
        return self.run("pg_ctl", "-D", self.data, "status",
                        check=False).returncode == 0

    def copy_to(self, other, settings):
        """Make a streaming standby of this server."""
        self.run("pg_basebackup", "-D", other.data, "-h", self.workdir, "-p",
                 str(self.port), "-U", "postgres", "-R", "-X", "stream", "-c", "fast")
        other.configure(settings)

    def connect(self, dbname="postgres", **options):
        conn = psycopg2.connect(host=self.workdir, port=self.port, user="postgres",
                                dbname=dbname, connect_timeout=60, **options)
        conn.autocommit = True
        return conn

    def wait_ready(self, seconds=300):
        end = time.time() + seconds
        while True:
            try:
                return self.connect()
            except psycopg2.OperationalError:
                if time.time() > end or not self.running():
                    raise
                time.sleep(0.1)

    def log_tail(self, lines=30):
        try:
            with open(self.log, errors="replace") as log:
                return "".join(log.readlines()[-lines:])
        except FileNotFoundError:
            return ""

    def log_faults(self):
        try:
            with open(self.log, errors="replace") as log:
                return [line.rstrip() for line in log
                        if BAD_LOG.search(line) and "STATEMENT:" not in line][:20]
        except FileNotFoundError:
            return []


def make_workdir(prefix):
    return tempfile.mkdtemp(prefix=prefix, dir="/tmp")


def remove_workdir(path):
    shutil.rmtree(path, ignore_errors=True)


def kill_backend(pid):
    os.kill(pid, signal.SIGKILL)


def core_files(path):
    return glob.glob(os.path.join(path, "*", "core*"))
