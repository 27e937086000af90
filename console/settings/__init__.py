"""Settings: `base` has every one; `run` is a running Signalbox; `test` starts services of its own."""
