"""The campaign of hostile inputs: one file for each class of input, seeded, so that each can be tried again alone.

Every class file has a function `attempt(trial)`, which draws one input from `trial`, hands it to the library, and
raises `WrongAnswer` where the answer is not right. judging.py says what became of it.
"""

CLASSES = (
    "tables",
    "files",
    "arrays",
    "configs",
    "checkpoints",
    "stores",
    "archives",
    "results",
    "pages",
    "command_lines",
)
