from benchmarks.peers.cases import cases

__all__ = ["cases"]
