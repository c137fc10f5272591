from benchmarks.peers.cases import run

__all__ = ["run"]
