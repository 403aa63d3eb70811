"""The command `python -m romae.experiments.peers`."""

from romae.experiments.peers.command import main

main()
