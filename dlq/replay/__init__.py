"""Replay: frozen selections, previews, jobs, and the executor that consumer processes run."""
