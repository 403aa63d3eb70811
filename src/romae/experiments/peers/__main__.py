"""The command `python -m romae.experiments.peers`."""

from romae.experiments.peers.command import main

if __name__ == "__main__":
    main()
