"""Two hosts with a paced cable between them, for the tools that need some."""
import json
import os
import subprocess
import sys
import time

FRAME, PAYLOAD = 1514, 1448  # bytes that a full packet takes of the cable, and those of them that TCP carries


def run(*words):
    subprocess.run(words, check=True)


class Cable:
    """Two network namespaces, each alive as long as a process in it. Each end sends at most so many bits a second."""

    def __init__(self, mbit):
        self.hosts = [subprocess.Popen(["unshare", "--net", "sleep", "3600"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        while any(os.readlink(f"/proc/{host.pid}/ns/net") == own for host in self.hosts):
            time.sleep(0.01)
        a, b = (host.pid for host in self.hosts)
        run("ip", "link", "add", "end0", "netns", str(a), "type", "veth", "peer", "name", "end1", "netns", str(b))
        for number, host in enumerate(self.hosts):
            end = f"end{number}"
            self.inside(number, "ip", "addr", "add", f"10.78.0.{number + 1}/24", "dev", end)
            self.inside(number, "ip", "link", "set", "lo", "up")
            self.inside(number, "ip", "link", "set", end, "up")
            self.inside(number, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", f"{mbit}mbit", "burst",
                        "256kb", "latency", "200ms")

    def words(self, number, *words):
        return ["nsenter", "--target", str(self.hosts[number].pid), "--net", *words]

    def inside(self, number, *words):
        run(*self.words(number, *words))

    def close(self):
        for host in self.hosts:
            host.kill()
            host.wait()


class Steps:
    """Ranks of a job that take steps on command (tandem bench step). `host_of`: of each rank."""

    def __init__(self, cable, tandem, host_of, settings, port=29400):
        self.ranks = []
        for rank, host in enumerate(host_of):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(len(host_of)), "OMP_NUM_THREADS": "1",
                         "LOCAL_RANK": str(host_of[:rank].count(host)), "LOCAL_WORLD_SIZE": str(host_of.count(host)),
                         "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": str(port)}
            command = cable.words(host, tandem, "bench", "step", "data=synthetic", "threads=1",
                                  "comm.timeout=3600", *settings)
            self.ranks.append(subprocess.Popen(command, env={**os.environ, **variables}, text=True,
                                               stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self.facts = json.loads(self.ranks[0].stdout.readline() or "{}")
        if not self.facts:
            sys.exit("a rank did not start")

    def take(self, steps):
        """The seconds of each."""
        self.ranks[0].stdin.write(f"{steps}\n")
        self.ranks[0].stdin.flush()
        return [float(word) for word in self.ranks[0].stdout.readline().split()]

    def close(self):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()
